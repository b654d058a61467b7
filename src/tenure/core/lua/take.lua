-- Taking a lock for one waiter; requests.py puts it in the place of a script's include line, behind common.lua.
-- KEYS: as common.lua says
-- ARGV: as the script that follows says
-- Reply: none of its own; the answers that `acquire` returns are in acquire.lua
-- Invariant: never two holders of an exclusive lock, never more than a semaphore's limit; a waiter is granted only when
--   nobody living stands in front of it.

-- Queue and entries end together; in a queue that was empty there is nothing to compare with. Beside leases whose
-- records keep the entries alive the queue lives longer as well: it names those whose entries are to be dropped.
local function longer(lock, life, fresh, beside)
  local ends = 2 * life
  if beside then ends = math.max(ends, HOUR) end
  if fresh then redis.call('PEXPIRE', lock[2], ends) else raise_ttl(lock[2], now + ends) end
  raise_ttl(lock[3], now + 2 * life)
end

-- Why a lock that holds `value` can never be given to these flags as they are; nil when it can.
local function clash(value, flags)
  if newer(value) then return {'conflict', 'the key holds a lock of a newer format'} end
  local wanted, limit = string.match(flags, '^(%a)(%d*)')
  local mode, in_force = marker(value)
  if mode == 'n' then
    if wanted ~= 'n' then return {'conflict', 'the name is in use as a semaphore'} end
    if limit ~= in_force then return {'limit', tonumber(in_force)} end
  elseif wanted == 'n' and (mode or ours(value)) then
    return {'conflict', 'the name is in use as an exclusive or shared lock'}
  end
  return nil
end

-- The grant of a token that holds already, its end moved to a full ttl from now; nil when it does not hold.
local function granted_again(lock, token, value, ttl, grace)
  local place = marker(value) and place_of(lock[5], token)
  local text = place and record_of(lock[3], token, value) or mine(value, token) and ours(value) and value
  if not text then return nil end
  if revoked(text) then return {'revoked'} end
  local till = now + ttl + grace
  if place then raise_place(lock[1], lock[3], lock[5], token, place, till) else raise_ttl(lock[1], till) end
  return {'granted', string.match(text, '^%S+ (%d+)'), 1, ttl}
end

-- Milliseconds until the lock can be expected to take somebody else (-1: nobody knows), and who is in the way.
local function obstacle(lock, value)
  if not value then return -1, '' end
  local mode = marker(value)
  if not mode then return redis.call('PTTL', lock[1]), public(value) end
  if mode == 's' then
    local last = redis.call('ZRANGE', lock[5], -1, -1)[1]
    return redis.call('PTTL', lock[1]), last and public_member(lock[3], last, value) or ''
  end
  local first = redis.call('ZRANGEBYSCORE', lock[5], now_text, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  if not first[1] then return redis.call('PTTL', lock[1]), '' end
  return tonumber(first[2]) - now, public_member(lock[3], first[1], value)
end

local function acquire(lock, token, ttl, grace, life, place, flags, info, asks)
  local value, problem = read(lock[1])
  if problem then return {'conflict', 'the key ' .. problem} end
  if value then
    local answer = granted_again(lock, token, value, ttl, grace) or clash(value, flags)
    if answer then return answer end
  end

  local budget = {pops = 0}
  local score = tonumber(place)
  if not value or marker(value) then
    local next_is, held = advance(lock, budget, value, token, score, flags)
    if next_is then
      local fence, unreadable = fence_for(lock, flags, held)
      if not fence then return {'conflict', unreadable} end
      -- Most callers never queued: no entry to take out.
      if score or next_is == 'own' then leave(lock, token) end
      held = store(lock, held, token, fence, ttl, grace, flags, info)
      -- Those behind it may hold beside it; nobody else would let them in.
      if (score or next_is == 'own') and string.byte(flags) ~= 120 then advance(lock, budget, held) end
      return {'granted', fence, 1, ttl}
    end
    if budget.problem then return {'conflict', budget.problem} end
    value = redis.call('GET', lock[1])
    local refused = value and clash(value, flags)
    if refused then return refused end
  end

  local ahead
  if life <= 0 then
    ahead = redis.call('ZRANK', lock[2], token)
    if ahead then leave(lock, token) end
    -- A writer that gives up has kept readers out, who have room now; by its score it is known when its entry ended just
    -- before this last try.
    if (ahead or score) and value and marker(value) then
      advance(lock, budget, value)
      value = redis.call('GET', lock[1])
    end
  end

  local heard = -1
  if asks == '1' and value then heard = ask_holders(value, lock[3], lock[5], info) end
  local left, holder = obstacle(lock, value)
  local more = budget.more and 1 or 0
  if life <= 0 then
    return {'busy', ahead or redis.call('ZCARD', lock[2]), left, holder, more, heard}
  end

  local queued, position = redis.call('ZSCORE', lock[2], token), nil
  if queued then
    score = tonumber(queued)
  else
    if subscribers(flags) == 0 then return {'subscribe'} end
    if not score then
      local last = redis.call('ZRANGE', lock[2], -1, -1, 'WITHSCORES')[2]
      score = micros
      if not last then position = 0 elseif tonumber(last) >= micros then score = tonumber(last) + 1 end
    end
    -- A place that it had beside others is over: forgetting it later would take the new entry along.
    if string.byte(flags) ~= 120 then redis.call('ZREM', lock[5], token) end
    redis.call('ZADD', lock[2], score, token)
  end
  redis.call('HSET', lock[3], token, (now + life) .. ' ' .. ttl .. ' ' .. grace .. ' ' .. flags .. ' ' .. info)
  longer(lock, life, position, value and marker(value))
  return {'queued', score == micros and micros_text or string.format('%.0f', score),
    position or redis.call('ZRANK', lock[2], token), left, holder, more, micros_text, heard}
end

-- One waiter of ARGV, from its first word on.
local function acquire_at(first)
  return acquire(lock_at((tonumber(ARGV[first]) - 1) * 5), ARGV[first + 1], tonumber(ARGV[first + 2]),
    tonumber(ARGV[first + 3]), tonumber(ARGV[first + 4]), ARGV[first + 5], ARGV[first + 6], ARGV[first + 7],
    ARGV[first + 8])
end

local late = tonumber(ARGV[3]) > 0 and now > tonumber(ARGV[3])
