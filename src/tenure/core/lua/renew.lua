-- Moves the ends of leases; never creates one.
-- KEYS: K of each exclusive lease, then K, {K}:entry, {K}:shared of each other one
-- ARGV: [1] echo, [2] channel prefix, [3] not-after (server ms, 0: none), [4] how many are exclusive, then three per
--   lease: token, ttl ms, grace ms
-- Reply: {echo, now ms, answer...}, an answer per lease: renewed | gone | taken | moved | revoked | late
-- Invariant: the end of a lease never moves back, and a lease of another token is not touched.

-- include: prelude
-- include: common

local late = tonumber(ARGV[3]) > 0 and now > tonumber(ARGV[3])
local exclusive = tonumber(ARGV[4])

local function renew(key, token, till)
  local over = ended(key, token)
  if over then return over end
  raise_ttl(key, till)
  return 'renewed'
end

local function renew_beside_others(key, entry, shared, token, till)
  local value, problem = read(key)
  if problem then return 'taken' end
  if not value then return 'gone' end
  if not marker(value) then return 'taken' end
  local place = place_of(shared, token)
  if not place then return 'gone' end
  if revoked(record_of(entry, token, value)) then return 'revoked' end
  raise_place(key, entry, shared, token, place, till)
  return 'renewed'
end

local reply = {ARGV[1], now}
for i = 1, (#ARGV - 4) / 3 do
  local at = 2 + i * 3
  local token, till = ARGV[at], now + tonumber(ARGV[at + 1]) + tonumber(ARGV[at + 2])
  local answer = 'late'
  if not late and i <= exclusive then
    answer = renew(KEYS[i], token, till)
  elseif not late then
    local base = exclusive + (i - exclusive - 1) * 3
    answer = renew_beside_others(KEYS[base + 1], KEYS[base + 2], KEYS[base + 3], token, till)
  end
  reply[#reply + 1] = answer
end
return reply
