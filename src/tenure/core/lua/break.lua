-- Takes a lock away from its holders: marks their leases revoked, or with force deletes them at once.
-- KEYS: K, {K}:queue, {K}:entry, {K}:fence, {K}:shared
-- ARGV: [1] echo, [2] channel prefix, [3] fence of the lease that was seen ('' any), [4] 1: force
-- Reply: {echo, now ms, none | other | foreign | revoked | deleted | conflict, holder or reason}
-- Invariant: without force the key stays until its holder has acknowledged or its lease has ended.

-- include: prelude
-- include: common

local lock = lock_at(0)
local force, seen_fence = ARGV[4] == '1', ARGV[3]

-- Of the many who hold beside each other those with the fence that was seen; at most 100 in one call.
local function break_shared(value)
  local first, told = nil, nil
  local left = POPS
  for _, token in ipairs(redis.call('ZRANGEBYSCORE', lock[5], now_text, '+inf')) do
    local seen = public_member(lock[3], token, value)
    first = first or seen
    if left > 0 and (seen_fence == '' or seen_fence == string.match(seen, '^%S+ (%d+)')) then
      told = told or seen
      left = left - 1
      local record = record_of(lock[3], token, value)
      if force then
        forget(lock, {token})
      elseif not revoked(record) then
        redis.call('HSET', lock[3], token, (string.gsub(record, '^(%S+ %d+ %d+ )', '%1!')))
        raise_ttl(lock[3], place_of(lock[5], token))
      end
      tell(flags_of(record), 'revoked ' .. token)
    end
  end
  if not told then return {ARGV[1], now, 'other', first or ''} end
  if not force then return {ARGV[1], now, 'revoked', told} end
  settle(lock)
  advance(lock, {pops = 0}, redis.call('GET', lock[1]))
  return {ARGV[1], now, 'deleted', told}
end

local value, problem = read(lock[1])
if problem then return {ARGV[1], now, 'conflict', 'the key ' .. problem} end
if not value then return {ARGV[1], now, 'none', ''} end
if newer(value) then return {ARGV[1], now, 'conflict', 'the key holds a lock of a newer format'} end
if marker(value) then return break_shared(value) end

local seen = public(value)
local token, fence, since, flags, info = string.match(value, '^%w+:(%w+) (%d+) (%d+) (%S+) (.*)$')
if not ours(value) then
  if seen_fence ~= '' then return {ARGV[1], now, 'other', seen} end
  if not force then return {ARGV[1], now, 'foreign', seen} end
elseif seen_fence ~= '' and seen_fence ~= fence then
  return {ARGV[1], now, 'other', seen}
end

if force then
  redis.call('DEL', lock[1])
  if flags then tell(flags, 'revoked ' .. token) end
  advance(lock, {pops = 0}, false)
  return {ARGV[1], now, 'deleted', seen}
end
if not revoked(value) then
  redis.call('SET', lock[1], MARK .. token .. ' ' .. fence .. ' ' .. since .. ' !' .. flags .. ' ' .. info, 'KEEPTTL')
end
tell(flags, 'revoked ' .. token)
return {ARGV[1], now, 'revoked', seen}
