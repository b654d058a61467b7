-- Constants and the server's clock; requests.py puts them in the place of a script's include line.
-- KEYS: none
-- ARGV: none
-- Reply: none of its own
-- Invariant: time is read once and first, so that all decisions of a script are made at the same instant.

local MARK = 'tenure1:'
local TOKEN_WIDTH = 44
local FENCE_LIFE = 86400000
local FENCE_AHEAD = 86400000000
local POPS = 100
-- How long the set of those who hold beside each other outlives K: whoever comes next forgets their records with it.
local LINGER = 120000
local HOUR = 3600000

-- Text, cut and never formatted: turning one number into 16 digits costs more than a call.
local clock = redis.call('TIME')
local micros_text = clock[1] .. string.sub('00000' .. clock[2], -6)
local now_text = string.sub(micros_text, 1, -4)
