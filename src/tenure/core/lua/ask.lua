-- Asks all who hold a lock to release it; whether they do is up to them.
-- KEYS: K, {K}:entry, {K}:shared
-- ARGV: [1] echo, [2] channel prefix, [3] who asks
-- Reply: {echo, now ms, told | none | foreign | conflict, how many heard it or -1, holder or reason}
-- Invariant: changes nothing.

-- include: prelude
-- include: common

local value, problem = read(KEYS[1])
if problem then return {ARGV[1], now, 'conflict', 0, 'the key ' .. problem} end
if not value then return {ARGV[1], now, 'none', 0, ''} end
if newer(value) then return {ARGV[1], now, 'conflict', 0, 'the key holds a lock of a newer format'} end
if marker(value) then
  local first = redis.call('ZRANGEBYSCORE', KEYS[3], now_text, '+inf', 'LIMIT', 0, 1)[1]
  local heard = ask_holders(value, KEYS[2], KEYS[3], ARGV[3])
  return {ARGV[1], now, 'told', heard, first and public_member(KEYS[2], first, value) or ''}
end
if not ours(value) then return {ARGV[1], now, 'foreign', 0, public(value)} end
return {ARGV[1], now, 'told', ask_holders(value, KEYS[2], KEYS[3], ARGV[3]), public(value)}
