-- Tells the server what it does not know yet of leases: the inbox under which their holder can be told, and their info.
-- KEYS: K, {K}:entry of each lease
-- ARGV: [1] echo, [2] channel prefix, then three per lease: token, what its flags lack ('' nothing), info ('' as it is)
-- Reply: {echo, now ms, answer...}, an answer per lease: announced | gone | taken | moved | revoked
-- Invariant: changes flags and info of the token's own lease and nothing else, its end least of all.

-- include: prelude
-- include: common

local function changed(text, tail, info)
  local front, flags, old = string.match(text, '^(%S+ %d+ %d+) (%S+) (.*)$')
  -- Cut short by somebody: nothing of it can be told any more.
  if not front then return text end
  if not string.find(flags, '@', 1, true) then flags = flags .. tail end
  return front .. ' ' .. flags .. ' ' .. (info == '' and old or info)
end

local function announce(key, entry, token, tail, info)
  local over, value = ended(key, token)
  if value then
    redis.call('SET', key, changed(value, tail, info), 'KEEPTTL')
    return 'announced'
  end
  if over ~= 'taken' or not marker(read(key) or '') then return over end
  local record = redis.call('HGET', entry, token)
  if not record or string.sub(record, 1, 2) ~= 'h ' then return 'gone' end
  if revoked(record) then return 'revoked' end
  redis.call('HSET', entry, token, changed(record, tail, info))
  return 'announced'
end

local reply = {ARGV[1], now}
for i = 1, #KEYS / 2 do
  reply[#reply + 1] = announce(KEYS[2 * i - 1], KEYS[2 * i], ARGV[3 * i], ARGV[3 * i + 1], ARGV[3 * i + 2])
end
return reply
