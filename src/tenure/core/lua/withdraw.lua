-- Undoes an acquire whatever became of it: leaves the queue, and releases when it was granted meanwhile.
-- KEYS: K, {K}:queue, {K}:entry, {K}:fence, {K}:shared
-- ARGV: [1] echo, [2] channel prefix, [3] token
-- Reply: {echo, now ms, released | gone | taken | moved, more, refused}
-- Invariant: afterwards the token neither holds nor waits, and nobody else's lease has changed; those whom it kept from
--   holding beside others are served.

-- include: prelude
-- include: common

local budget = {pops = 0}
local lock = lock_at(0)
leave(lock, ARGV[3])
local answer = release(lock, ARGV[3], budget)
return {ARGV[1], now, answer, budget.more and 1 or 0, budget.refused and 1 or 0}
