-- Shared functions; requests.py puts them in the place of a script's include line, behind its fast path: making the
-- functions costs more than an uncontended acquire.
-- A lock is five keys, all in one slot: [1] K, [2] {K}:queue, [3] {K}:entry, [4] {K}:fence, [5] {K}:shared.
-- KEYS: as the script that follows says
-- ARGV: [1] echo, [2] prefix of inbox channels; the rest as the script that follows says
-- Reply: none of its own
-- Invariant: K exists exactly while somebody holds, and the fence key is written before it, so that every prefix of
--   the writes is safe: Redis does not roll back a script that fails half way.

local now = tonumber(now_text)
local micros = tonumber(micros_text)

local function lock_at(base)
  return {KEYS[base + 1], KEYS[base + 2], KEYS[base + 3], KEYS[base + 4], KEYS[base + 5]}
end

local function sha8(text)
  return string.sub(redis.sha1hex(text), 1, 8)
end

local function mine(value, token)
  return string.sub(value, 1, #MARK + TOKEN_WIDTH + 1) == MARK .. token .. ' '
end

-- The whole format, not the mark alone: a value that somebody cut short counts as foreign.
local function ours(value)
  local _, last = string.find(value, '^tenure1:%w+ ')
  return last == #MARK + TOKEN_WIDTH + 1 and string.find(value, '^%d+ %d+ %S+ ', last + 1) ~= nil
end

-- What stands in K while shared or semaphore leases live: mode, limit (an empty text for shared), first fence, since.
local function marker(value)
  local mode, limit, fence, since = string.match(value, '^tenure1:([sn])(%d*) (%d+) (%d+)$')
  if mode and (mode == 's') == (limit == '') then return mode, limit, fence, since end
  return nil
end

local function newer(value)
  local mark = string.match(value, '^tenure(%d+):')
  return mark and mark ~= '1'
end

-- The flags of an exclusive lease, or of a record of another one.
local function flags_of(text)
  return string.match(text, '^%S+ %d+ %d+ (%S+) ') or ''
end

local function revoked(text)
  return string.sub(flags_of(text), 1, 1) == '!'
end

-- Adopted by another process: nothing was taken from the old token, its lease has moved.
local function moved_from(text, token)
  return string.find(flags_of(text), '<' .. sha8(token), 1, true) ~= nil
end

-- What others may see of a holder: everything but the token, which is the right to release.
local function public(value)
  if ours(value) then
    return sha8(string.sub(value, #MARK + 1, #MARK + TOKEN_WIDTH)) .. ' ' .. string.sub(value, #MARK + TOKEN_WIDTH + 2)
  end
  return 'foreign ' .. sha8(value)
end

-- What is known of one of those who hold beside each other: 'h fence since flags info'.
local function record_of(entry, token, value)
  local record = redis.call('HGET', entry, token)
  if record and string.find(record, '^h %d+ %d+ %S+ ') then return record end
  local mode, limit, fence, since = marker(value)
  return 'h ' .. fence .. ' ' .. since .. ' ' .. mode .. limit .. ' {}'
end

local function public_member(entry, token, value)
  return sha8(token) .. string.sub(record_of(entry, token, value), 2)
end

-- A key's string, false when there is none, or nil and what it holds instead.
local function read(key)
  local value = redis.pcall('GET', key)
  if type(value) ~= 'table' then return value end
  -- Anything but a wrong type (no permission, say) is the caller's error: let the plain call raise it.
  if not string.match(value.err, '^WRONGTYPE') then return redis.call('GET', key) end
  return nil, 'holds a ' .. redis.call('TYPE', key).ok
end

-- How an exclusive lease of `token` has ended: taken, moved, gone or revoked; or nil, and its value, while it lives.
local function ended(key, token)
  local value, problem = read(key)
  if problem then return 'taken' end
  if not value then return 'gone' end
  if not mine(value, token) then return ours(value) and moved_from(value, token) and 'moved' or 'taken' end
  if revoked(value) then return 'revoked' end
  return nil, value
end

-- The end of a token's place beside others, while it lives.
local function place_of(shared, token)
  local till = tonumber(redis.call('ZSCORE', shared, token) or 0)
  return till >= now and till or nil
end

-- Each key on its own: one that a script left behind half way must not hide behind another.
local function raise_ttl(key, till)
  if redis.call('PTTL', key) < till - now then redis.call('PEXPIREAT', key, till) end
end

-- Raises the end of a token's place beside others, and what has to last as long; K comes last.
local function raise_place(key, entry, shared, token, place, till)
  -- First, and always: a full server refuses a script whose first write may need memory, and none behind it.
  redis.call('PEXPIREAT', shared, math.max(now + redis.call('PTTL', shared), till + LINGER))
  if place < till then redis.call('ZADD', shared, till, token) end
  raise_ttl(entry, till)
  raise_ttl(key, till)
end

local function channel_of(flags)
  local kind, inbox = string.match(flags, '@(%a)(%w+)')
  return kind, inbox and ARGV[2] .. inbox
end

local function subscribers(flags)
  local kind, channel = channel_of(flags)
  if not kind then return 0 end
  local answer = redis.pcall('PUBSUB', kind == 's' and 'SHARDNUMSUB' or 'NUMSUB', channel)
  -- Not allowed to ask is no proof of death: the message itself will tell.
  if answer.err then return 1 end
  return answer[2]
end

-- How many clients the message reached; nil when the server refused to publish.
local function tell(flags, message)
  local kind, channel = channel_of(flags)
  if not kind then return 0 end
  local reached
  if kind == 's' then
    reached = redis.pcall('SPUBLISH', channel, message)
  else
    -- PUBLISH counts pattern subscribers as well: one PSUBSCRIBE * would make the dead look alive.
    if subscribers(flags) == 0 then return 0 end
    reached = redis.pcall('PUBLISH', channel, message)
  end
  if type(reached) == 'number' then return reached end
  return nil
end

-- Tells each holder who asks for the lock; how many were reached, or -1 when the server refused to publish.
local function ask_holders(value, entry, shared, info)
  local heard, refused = 0, false
  local function ask(token, flags)
    local reached = tell(flags, 'asked ' .. token .. ' ' .. info)
    if not reached then refused = true elseif reached > 0 then heard = heard + 1 end
  end
  if ours(value) then
    ask(string.sub(value, #MARK + 1, #MARK + TOKEN_WIDTH), flags_of(value))
  elseif marker(value) then
    for _, token in ipairs(redis.call('ZRANGEBYSCORE', shared, now_text, '+inf', 'LIMIT', 0, POPS)) do
      ask(token, flags_of(record_of(entry, token, value)))
    end
  end
  return refused and heard == 0 and -1 or heard
end

-- The next fence of a lock as text, or nil and the reason why it cannot be told.
local function next_fence(fence_key)
  local stored, problem = read(fence_key)
  if problem then return nil, 'the fence key ' .. problem end
  if not stored then return micros_text end
  local number = tonumber(stored)
  if not number or not string.match(stored, '^%d+$') or number > micros + FENCE_AHEAD then
    return nil, 'the fence key is unreadable or more than a day ahead of the clock'
  end
  if number < micros then return micros_text end
  return string.format('%.0f', number + 1)
end

local function forget(lock, tokens)
  if #tokens > 0 then
    redis.call('HDEL', lock[3], unpack(tokens))
    redis.call('ZREM', lock[5], unpack(tokens))
  end
end

-- Hygiene only: who counts as a holder is decided by the scores.
local function purge(lock)
  forget(lock, redis.call('ZRANGEBYSCORE', lock[5], '-inf', '(' .. now_text, 'LIMIT', 0, POPS))
end

-- K is gone, and nobody in the set holds anything any more. In pieces: a script may not unpack thousands at once.
local function forget_all(lock)
  while redis.call('EXISTS', lock[5]) == 1 do
    forget(lock, redis.call('ZRANGE', lock[5], 0, POPS - 1))
  end
end

-- The fence of a lease that is about to be granted, or nil and the reason why there is none. Those who share a lock at
-- the same time share a fence as well.
local function fence_for(lock, flags, value)
  if value and string.sub(flags, 1, 1) == 's' then return (select(3, marker(value))) end
  return next_fence(lock[4])
end

-- Writes a grant; K holds `value` (false: nothing). Returns what K holds afterwards.
local function store(lock, value, token, fence, ttl, grace, flags, info)
  local mode, limit = string.match(flags, '^(%a)(%d*)')
  local till = now + ttl + grace
  if mode ~= 's' or not value then
    redis.call('SET', lock[4], fence, 'PX', math.max(FENCE_LIFE, 10 * ttl))
  end
  if mode == 'x' then
    value = MARK .. token .. ' ' .. fence .. ' ' .. now .. ' ' .. flags .. ' ' .. info
    redis.call('SET', lock[1], value, 'PXAT', till)
    return value
  end
  -- First, or the record of a token whose own earlier lease has ended would go.
  if value then purge(lock) else forget_all(lock) end
  redis.call('HSET', lock[3], token, 'h ' .. fence .. ' ' .. now .. ' ' .. flags .. ' ' .. info)
  redis.call('ZADD', lock[5], till, token)
  raise_ttl(lock[5], till + LINGER)
  raise_ttl(lock[3], till)
  if value then
    raise_ttl(lock[1], till)
  else
    value = MARK .. mode .. limit .. ' ' .. fence .. ' ' .. now
    redis.call('SET', lock[1], value, 'PXAT', till)
  end
  return value
end

-- K ends with the last of those who hold beside each other.
local function settle(lock)
  purge(lock)
  local last = redis.call('ZRANGE', lock[5], -1, -1, 'WITHSCORES')[2]
  if last and tonumber(last) >= now then
    redis.call('PEXPIREAT', lock[1], last)
  else
    redis.call('DEL', lock[1])
    forget_all(lock)
  end
end

local function leave(lock, token)
  redis.call('ZREM', lock[2], token)
  redis.call('HDEL', lock[3], token)
end

-- The first waiter whose entry still lives: token, score, and the fields of its entry; expired heads are dropped.
local function head(lock, budget)
  while budget.pops < POPS do
    local first = redis.call('ZRANGE', lock[2], 0, 0, 'WITHSCORES')
    if not first[1] then return nil end
    local entry = redis.call('HGET', lock[3], first[1])
    if entry then
      local till, ttl, grace, flags, info = string.match(entry, '^(%d+) (%d+) (%d+) (%S+) (.*)$')
      if till and tonumber(till) >= now then
        return first[1], tonumber(first[2]), tonumber(ttl), tonumber(grace), flags, info
      end
    end
    leave(lock, first[1])
    budget.pops = budget.pops + 1
  end
  budget.more = true
  return nil
end

-- Whether a lock whose K holds `value` can take one more lease of these flags.
local function room(lock, value, flags)
  if not value then return true end
  local mode, limit = marker(value)
  if mode ~= string.sub(flags, 1, 1) then return false end
  return mode == 's' or redis.call('ZCOUNT', lock[5], now_text, '+inf') < tonumber(limit)
end

-- Deletes the lease of `token`; false when it holds nothing here.
local function drop(lock, token, value)
  if mine(value, token) then
    redis.call('DEL', lock[1])
    return true
  end
  if not marker(value) then return false end
  local held = place_of(lock[5], token) ~= nil
  if redis.call('ZREM', lock[5], token) == 1 then redis.call('HDEL', lock[3], token) end
  settle(lock)
  return held
end

-- Gives a lock whose K holds `value` to living waiters in their order, as many as it can take; stops in front of `own`,
-- who is served by the reply instead. `own_score` is the place of a caller that is not in the queue. Answers 'own' or
-- 'empty', and what K holds by now, when the caller is next and the lock can take its `own_flags`.
local function advance(lock, budget, value, own, own_score, own_flags)
  while true do
    local token, score, ttl, grace, flags, info = head(lock, budget)
    if budget.more then return nil end
    if not token or token == own or (own_score and own_score < score) then
      if not own_flags or not room(lock, value, own_flags) then return nil end
      return token and token == own and 'own' or 'empty', value
    end
    if not room(lock, value, flags) then
      -- A writer that has died must not keep readers out until its entry ends.
      if subscribers(flags) > 0 then return nil end
      leave(lock, token)
      budget.pops = budget.pops + 1
    else
      local fence, problem = fence_for(lock, flags, value)
      if not fence then budget.problem = problem return nil end
      leave(lock, token)
      budget.pops = budget.pops + 1
      value = store(lock, value, token, fence, ttl, grace, flags, info)
      -- The key comes along, so that even a client that has forgotten the token can give the lock back.
      local reached = tell(flags, 'granted ' .. token .. ' ' .. micros_text .. ' ' .. fence .. ' 1 ' .. lock[1])
      if reached == 0 then
        drop(lock, token, value)
        value = marker(value) and redis.call('GET', lock[1])
      else
        if not reached then budget.refused = true end
        if string.sub(flags, 1, 1) == 'x' then return nil end
      end
    end
  end
end

-- Deletes the lease of `token` and hands the lock over. Answers released, gone, taken or moved.
local function release(lock, token, budget)
  local value, problem = read(lock[1])
  if problem then return 'taken' end
  local answer = 'gone'
  if value then
    if drop(lock, token, value) then
      answer = 'released'
    elseif marker(value) then
      answer = 'taken'
    else
      return ours(value) and moved_from(value, token) and 'moved' or 'taken'
    end
    value = marker(value) and redis.call('GET', lock[1])
  end
  advance(lock, budget, value)
  return answer
end
