-- Takes free locks, queues for held ones, refreshes places: one or many waiters of one client, idempotent per token.
-- KEYS: five per lock: K, {K}:queue, {K}:entry, {K}:fence, {K}:shared
-- ARGV: [1] echo, [2] channel prefix, [3] not-after (server ms, 0: none), then nine per waiter: number of its lock,
--   token, ttl ms, grace ms, life of its entry ms (0: one try), score of a place it had ('' none), flags, info, 1: ask
--   who holds to release
-- Reply: {echo, now ms, answer...}, an answer per waiter, or the text 'echo now granted fence count remaining' when one
--   caller gets a free lock (a table costs the server more than the rest of the work); the answers:
--   {granted, fence, count, remaining ms} | {queued, score, position, ms until the way may be free or -1, holder, more,
--   now us, heard} | {busy, waiters ahead, ms or -1, holder, more, heard} | {subscribe} | {revoked} | {late} |
--   {limit, the one in force} | {conflict, reason}; heard: how many holders heard the asking, -1: nobody was asked
-- Invariant: never two holders, or more than the limit; a waiter is granted only when nobody living stands in front.

-- include: prelude

-- Free, nobody waits, one caller: nearly every acquire of a program that scales.
if #ARGV == 12 and string.byte(ARGV[10]) == 120 and redis.call('EXISTS', KEYS[1], KEYS[2]) == 0
    and #ARGV[3] == #now_text and now_text <= ARGV[3] then
  local stored = redis.pcall('GET', KEYS[4])
  -- Compared as text: the same number of digits, and no conversion. Anything odd is left to the full script.
  if not stored or (type(stored) == 'string' and #stored == #micros_text and stored < micros_text
      and string.find(stored, '^%d+$')) then
    local ttl = tonumber(ARGV[6])
    redis.call('SET', KEYS[4], micros_text, 'PX', ttl > FENCE_LIFE / 10 and 10 * ttl or '86400000')
    redis.call('SET', KEYS[1],
      MARK .. ARGV[5] .. ' ' .. micros_text .. ' ' .. now_text .. ' ' .. ARGV[10] .. ' ' .. ARGV[11], 'PXAT', now_text + ttl + ARGV[7])
    return ARGV[1] .. ' ' .. now_text .. ' granted ' .. micros_text .. ' 1 ' .. ARGV[6]
  end
end

-- include: common
-- include: take

local reply = {ARGV[1], now}
for first = 4, #ARGV, 9 do
  reply[#reply + 1] = late and {'late'} or acquire_at(first)
end
return reply
