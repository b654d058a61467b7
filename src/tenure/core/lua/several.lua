-- Takes several locks at once if every one of them can be had at once, else none; idempotent for the same tokens.
-- KEYS: five per lock: K, {K}:queue, {K}:entry, {K}:fence, {K}:shared
-- ARGV: [1] echo, [2] channel prefix, [3] not-after, [4] ttl ms, [5] grace ms, [6] flags, [7] info, then a token per lock
-- Reply: {echo, now ms, {granted, fence...} | {held, index from 0} | {late} | {conflict, index, reason}}
-- Invariant: all or nothing; nobody who waits is overtaken.

-- include: prelude
-- include: common
-- include: take

local ttl, grace, flags, info = tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6], ARGV[7]

local function several()
  if late then return {'late'} end
  local plan = {}
  for i = 1, #KEYS / 5 do
    local lock, token = lock_at((i - 1) * 5), ARGV[7 + i]
    local value, problem = read(lock[1])
    if problem then return {'conflict', i - 1, 'the key ' .. problem} end
    local refused = value and clash(value, flags)
    if refused then return {'conflict', i - 1, refused[2]} end
    local has = value and (mine(value, token) and ours(value) and value
      or marker(value) and place_of(lock[5], token) and record_of(lock[3], token, value))
    if has then
      if revoked(has) then return {'held', i - 1} end
      plan[i] = {lock, token, value, true}
    else
      if redis.call('EXISTS', lock[2]) == 1 or not room(lock, value, flags) then return {'held', i - 1} end
      local fence, unreadable = fence_for(lock, flags, value)
      if not fence then return {'conflict', i - 1, unreadable} end
      plan[i] = {lock, token, value, false, fence}
    end
  end
  local answer = {'granted'}
  for i, step in ipairs(plan) do
    local lock, token, value, has, fence = unpack(step)
    if has then
      fence = granted_again(lock, token, value, ttl, grace)[2]
    else
      store(lock, value, token, fence, ttl, grace, flags, info)
    end
    answer[i + 1] = fence
  end
  return answer
end
return {ARGV[1], now, several()}
