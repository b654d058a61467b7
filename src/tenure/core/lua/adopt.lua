-- Moves a lease from the token that was handed over to a new one: one compare-and-set, same fence, idempotent.
-- KEYS: K, {K}:queue, {K}:entry, {K}:fence, {K}:shared, {K}:moved:<id of the old token>
-- ARGV: [1] echo, [2] channel prefix, [3] not-after, [4] old token, [5] new token, [6] ttl ms, [7] grace ms, [8] what
--   follows the mode in its flags, [9] info
-- Reply: {echo, now ms, {adopted, fence, mode} | {gone} | {taken} | {revoked} | {late}}
-- Invariant: the lock is never free in between, and the old token holds nothing afterwards.

-- include: prelude
-- include: common
-- include: take

local old, new, ttl, grace = ARGV[4], ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7])

-- The text of the lease under its new token; the first word stays for the caller to choose.
local function moved(text, first)
  local fence, since, flags = string.match(text, '^%S+ (%d+) (%d+) (%S+) ')
  local mode = string.match(flags, '^%a%d*')
  return first .. ' ' .. fence .. ' ' .. since .. ' ' .. mode .. '<' .. sha8(old) .. ARGV[8] .. ' ' .. ARGV[9], fence, mode
end

local function adopt(lock)
  if late then return {'late'} end
  local value, problem = read(lock[1])
  if problem then return {'taken'} end
  if not value then return {'gone'} end
  local has = granted_again(lock, new, value, ttl, grace)
  if has then
    if has[1] == 'revoked' then return has end
    -- An adoption that stopped half way has left the old one beside the new one.
    if marker(value) and old ~= new and redis.call('ZSCORE', lock[5], old) then forget(lock, {old}) end
    local text = marker(value) and record_of(lock[3], new, value) or value
    return {'adopted', has[2], string.match(flags_of(text), '^%a%d*') or ''}
  end
  local till = now + ttl + grace
  if mine(value, old) and ours(value) then
    if revoked(value) then return {'revoked'} end
    local text, fence, mode = moved(value, MARK .. new)
    redis.call('SET', lock[1], text, 'KEEPTTL')
    raise_ttl(lock[1], till)
    return {'adopted', fence, mode}
  end
  if not marker(value) then return {'taken'} end
  local place = place_of(lock[5], old)
  if not place then return {'gone'} end
  local record = record_of(lock[3], old, value)
  if revoked(record) then return {'revoked'} end
  local text, fence, mode = moved(record, 'h')
  redis.call('HSET', lock[3], new, text)
  redis.call('ZADD', lock[5], place, new)
  raise_place(lock[1], lock[3], lock[5], new, place, till)
  forget(lock, {old})
  return {'adopted', fence, mode}
end

local answer = adopt(lock_at(0))
-- Whoever has handed the lease down may look for it when it is over already: it was adopted, and nothing was lost.
if answer[1] == 'adopted' and KEYS[6] then redis.call('SET', KEYS[6], sha8(new), 'PXAT', now + ttl + grace) end
return {ARGV[1], now, answer}
