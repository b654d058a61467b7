-- Runs one command on a key, unless a newer fence than the caller's was seen there.
-- KEYS: the key; its companion, which remembers the highest fence.
-- ARGV: fence, milliseconds for which the companion is kept, command, arguments of the command after the key.
-- Reply: {1, the command's reply} or {0, the fence that was seen}.
-- Invariant: the companion's number never falls; a command that was refused has changed nothing.
local fence, seen = ARGV[1], redis.call('GET', KEYS[2])
if seen then
    if not string.find(seen, '^[1-9]%d*$') then
        return redis.error_reply('ERR ' .. KEYS[2] .. ' holds no fence')
    end
    -- As text: a number of Lua has 53 bits, a fence 63.
    if #seen > #fence or (#seen == #fence and seen > fence) then
        return {0, seen}
    end
end
redis.call('SET', KEYS[2], fence, 'PX', ARGV[2])
return {1, redis.call(ARGV[3], KEYS[1], unpack(ARGV, 4))}
