-- One try at a lock that must not be taken again for a while after it was granted; never queues.
-- KEYS: K, {K}:queue, {K}:entry, {K}:fence, {K}:shared, {K}:again
-- ARGV: [1] echo, [2] channel prefix, [3] not-after, [4] to [12] the nine of acquire.lua, [13] at least ms between two
--   grants (0: no rule)
-- Reply: {echo, now ms, answer}, the answer as of acquire.lua, or {again, ms until the next grant, who had the last one}
-- Invariant: two grants that ask for a distance are that far apart, whatever became of the first one's work.

-- include: prelude
-- include: common
-- include: take

local apart = tonumber(ARGV[13])
local function once()
  if late then return {'late'} end
  local lock = lock_at(0)
  local token = ARGV[5]
  local value = read(lock[1])
  local answer = value and granted_again(lock, token, value, tonumber(ARGV[6]), tonumber(ARGV[7]))
  if answer then return answer end
  if apart > 0 then
    local last = redis.call('GET', KEYS[6])
    if last then return {'again', redis.call('PTTL', KEYS[6]), last} end
  end
  answer = acquire_at(4)
  if answer[1] == 'granted' and apart > 0 then
    redis.call('SET', KEYS[6], sha8(token) .. ' ' .. answer[2] .. ' ' .. now .. ' ' .. ARGV[10] .. ' ' .. ARGV[11],
      'PX', apart)
  end
  return answer
end
return {ARGV[1], now, once()}
