-- Tells who holds a lock and who waits for it, without tokens. Writes nothing: runs on a read-only server too.
-- KEYS: K, {K}:queue, {K}:entry, {K}:fence, {K}:shared
-- ARGV: [1] echo, [2] channel prefix, [3] how many waiters at the most, [4] how many holders at the most
-- Reply: {echo, now ms, type of K, '' | mode | foreign | newer, {holder, ms until its end or -1, ...},
--   {id, score, entry, ...}}
-- Invariant: no token leaves the server.

-- include: prelude
-- include: common

local kind = redis.call('TYPE', KEYS[1]).ok
local lock = lock_at(0)
local mode, holders, waiting = '', {}, {}
if kind == 'string' then
  local value = redis.call('GET', KEYS[1])
  local shared, limit = marker(value)
  if newer(value) then
    mode = 'newer'
  elseif shared then
    mode = shared .. limit
    local live = redis.call('ZRANGEBYSCORE', lock[5], now_text, '+inf', 'WITHSCORES', 'LIMIT', 0, ARGV[4])
    for i = 1, #live, 2 do
      holders[i] = public_member(KEYS[3], live[i], value)
      holders[i + 1] = tonumber(live[i + 1]) - now
    end
  else
    mode = ours(value) and 'x' or 'foreign'
    holders = {public(value), redis.call('PTTL', KEYS[1])}
  end
end
local most = tonumber(ARGV[3])
if most > 0 then
  local queue = redis.call('ZRANGE', KEYS[2], 0, most - 1, 'WITHSCORES')
  for i = 1, #queue, 2 do
    local entry = redis.call('HGET', KEYS[3], queue[i])
    if entry and tonumber(string.match(entry, '^(%d+)') or 0) >= now then
      waiting[#waiting + 1] = sha8(queue[i])
      waiting[#waiting + 1] = queue[i + 1]
      waiting[#waiting + 1] = entry
    end
  end
end
return {ARGV[1], now, kind, mode, holders, waiting}
