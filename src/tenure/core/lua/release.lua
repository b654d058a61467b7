-- Ends a lease and hands the lock to the first living waiters in the same call.
-- KEYS: K, {K}:queue, {K}:entry, {K}:fence, {K}:shared
-- ARGV: [1] echo, [2] channel prefix, [3] token
-- Reply: {echo, now ms, released | gone | taken | moved, more, refused}, or the same as text, with 0 for now, when
--   nobody waits
-- Invariant: never touches a lease of another token; a lock that is free afterwards has no living waiter.

-- Ours, and nobody waits: nearly every release; it needs no clock.
local value = redis.pcall('GET', KEYS[1])
local ours_still = #ARGV[3] == 44 and type(value) == 'string' and string.find(value, 'tenure1:' .. ARGV[3] .. ' ', 1, true) == 1
if ours_still then
  redis.call('DEL', KEYS[1])
  if redis.call('EXISTS', KEYS[2]) == 0 then return ARGV[1] .. ' 0 released 0 0' end
end

-- include: prelude
-- include: common

local budget = {pops = 0}
local answer = 'released'
if ours_still then advance(lock_at(0), budget, false) else answer = release(lock_at(0), ARGV[3], budget) end
return {ARGV[1], now, answer, budget.more and 1 or 0, budget.refused and 1 or 0}
