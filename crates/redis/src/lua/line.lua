-- The law of one name's line, restated for the server (crates/core/src/line.rs has the original, and random
-- operations hold this to it). Numbers of microseconds go through `num`: Redis prints others with 14 digits.
--
-- One name at a time is looked at; `begin` reads it, and drops what has run out.
local PLACE, SHORT, LONG, TOMB = 2000000, 1400000, 100000, 10000000
local now = redis.call('TIME')
now = now[1] * 1000000 + now[2]

local K, P, H, U, I, BASE -- the plain key, and the keys of the line
local stands, left -- what stands under the plain key, and for how many milliseconds
local plain -- its parts, if it is a lease of ours
local foreign -- whether it is somebody else's
local waiters, holders -- those in the line's own keys, by place
local shut -- the closure
local freed -- whether anything went that somebody may wait for

local function num(n) return string.format('%.0f', n) end
-- The server drops a key only after the millisecond of its end, the law at it: so keys live one less.
local function ms(us) return string.format('%.0f', math.max(1, math.ceil(us / 1000) - 1)) end
local function life_of(key)
  local life = redis.call('PTTL', key)
  return life < 0 and life or life + 1
end

-- A member of the line is one text: id, turn, share, wanted share, ttl, delay, at_least, reshape, since.
local function id_of(m) return string.sub(m, 1, 32) end
local function hex(m, from) return tonumber(string.sub(m, from, from + 7), 16) end
local function take_of(m) return hex(m, 34) end
local function limit_of(m) return hex(m, 42) end
local function ttl_of(m) return hex(m, 66) * 1000 end
local function since_of(m) return tonumber(string.sub(m, 98)) end
local function reshape_of(m) return hex(m, 90) end
local function member(c, take, of, since)
  return string.format('%s%s%08x%08x%08x%08x%08x%08x%08x%08x%.0f', c.id, c.turn, take, of, 0, 0, c.ttl / 1000, c.delay,
    c.least, c.reshape, since)
end
-- What others must leave to it.
local function claims_of(m)
  local wanted = hex(m, 50)
  if wanted > 0 then return wanted, hex(m, 58) end
  return take_of(m), limit_of(m)
end
-- The same member with another share, and another wish.
local function reshaped(m, take, of, wtake, wof, reshape)
  return string.sub(m, 1, 33) .. string.format('%08x%08x%08x%08x', take, of, wtake, wof) .. string.sub(m, 66, 89)
    .. string.format('%08x', reshape) .. string.sub(m, 98)
end

local function parse(value)
  if string.sub(value, 33, 33) ~= '|' then return nil end
  local id, place, first, run, ttl, since, reshape, owner, token, count, note =
    string.match(value, '^(%x+)|(%d+)|(%d+)|(%d+)|(%d+)|(%d+)|(%d+)|([^|]*)|(%d+)|(%d+)|(.*)$')
  if not id then return nil end
  return {id = id, place = tonumber(place), first = tonumber(first), run = tonumber(run), ttl = ttl * 1000,
    since = tonumber(since), reshape = tonumber(reshape), owner = owner, token = tonumber(token), count = tonumber(count), note = note}
end
local function unparse(p)
  return table.concat({p.id, num(p.place), num(p.first), num(p.run), num(p.ttl / 1000), num(p.since),
    num(p.reshape), p.owner, num(p.token), num(p.count), p.note}, '|')
end

local function index_of(list, id)
  for at = 1, #list do
    if string.sub(list[at], 1, 32) == id then return at end
  end
end

local function read_shut()
  shut = nil
  local text = redis.call('HGET', I, 's')
  if text then
    local till, lasting, rest = string.match(text, '^(%d+)|(%d+)|(.*)$')
    shut = {till = math.min(tonumber(till), now + lasting), lasting = tonumber(lasting), rest = rest}
  end
end
-- Of two closures the longer one stands.
local function keep_shut(till, lasting, rest)
  if till > now and (not shut or till > shut.till) then
    shut = {till = till, lasting = lasting, rest = rest}
    redis.call('HSET', I, 's', num(till) .. '|' .. num(lasting) .. '|' .. rest)
  end
end

-- Until when the name is taken by this holder, with what it leaves behind should it end uncleanly.
local function end_of(m, till)
  local delay, least = hex(m, 74), hex(m, 82)
  if delay + least == 0 then return till end
  return math.max(till + delay * 1000, since_of(m) + least * 1000)
end

local function scores()
  local flat, map = redis.call('ZRANGE', U, 0, -1, 'WITHSCORES'), {}
  for at = 1, #flat, 2 do map[flat[at]] = tonumber(flat[at + 1]) end
  return map
end

-- The line's keys would be forgotten only by their members' ends; they are kept a minute longer than needed, and
-- set anew only when that has been used up.
local function keep(us)
  local life = redis.call('PTTL', I)
  local need = us / 1000
  if life < need then life = need + 60000 elseif #waiters ~= 1 and #holders ~= 1 then return end
  for _, key in ipairs({P, H, U, I}) do redis.call('PEXPIRE', key, num(life)) end
end

-- Foreign clients see the plain key alone: while there are holders in the line, or a closure, it is occupied
-- until the last of them ends. A mark that was lost is never put back for who held before.
local function mark()
  local last = shut and shut.till or 0
  if #holders > 0 then
    local till = scores()
    for _, m in ipairs(holders) do last = math.max(last, end_of(m, till[id_of(m)] or 0)) end
  end
  if last > now then
    if stands == OCCUPIED then
      redis.call('PEXPIRE', K, ms(last - now))
    elseif not stands then
      redis.call('SET', K, OCCUPIED, 'PX', ms(last - now))
      stands = OCCUPIED
    end
    keep(last - now)
  elseif stands == OCCUPIED then
    redis.call('DEL', K)
    stands, left = false, -2
  end
end

local function drop_holder(at)
  local m = table.remove(holders, at)
  redis.call('ZREM', H, m)
  redis.call('ZREM', U, id_of(m))
  redis.call('HDEL', I, id_of(m), 'g' .. id_of(m))
  freed = true
  return m
end
local function drop_waiter(at)
  local m = table.remove(waiters, at)
  redis.call('ZREM', P, m)
  redis.call('ZREM', U, id_of(m))
  redis.call('HDEL', I, id_of(m), 'c' .. id_of(m))
  freed = true
  return m
end

-- A clock that stepped back must not make leases of ours longer than they were asked for.
local function cut()
  local top = redis.call('ZREVRANGE', U, 0, 0, 'WITHSCORES')
  if #top == 0 or tonumber(top[2]) <= now + PLACE then return end
  local most = PLACE
  for _, m in ipairs(holders) do most = math.max(most, ttl_of(m)) end
  if tonumber(top[2]) <= now + most then return end
  local till = scores()
  for _, m in ipairs(holders) do
    if (till[id_of(m)] or 0) > now + ttl_of(m) then
      redis.call('ZADD', U, num(now + ttl_of(m)), id_of(m))
      redis.call('PEXPIRE', BASE .. ':x:' .. id_of(m), ms(2 * ttl_of(m) + TOMB))
    end
  end
  for _, m in ipairs(waiters) do
    if (till[id_of(m)] or 0) > now + PLACE then redis.call('ZADD', U, num(now + PLACE), id_of(m)) end
  end
  mark()
end

local function sweep()
  local out = redis.call('ZRANGEBYSCORE', U, '-inf', num(now), 'WITHSCORES')
  local ends, order = {}, {}
  for at, m in ipairs(holders) do order[id_of(m)] = at end
  -- All of them before anything changes: in a slot of a cluster that is half moved one may be gone, which ends the script.
  local lives = {}
  for at = 1, #out, 2 do
    if order[out[at]] then lives[out[at]] = life_of(BASE .. ':x:' .. out[at]) end
  end
  for at = 1, #out, 2 do
    local id, till = out[at], tonumber(out[at + 1])
    local holds, waits = index_of(holders, id), index_of(waiters, id)
    if holds then
      local m = holders[holds]
      -- A renewal without memory prolongs the tombstone alone, which outlives the lease by the ttl and TOMB.
      local more = lives[id] * 1000 - ttl_of(m) - TOMB
      if more > 1000 then
        redis.pcall('ZADD', U, num(now + more), id)
      else
        local over = end_of(m, till)
        if over > math.max(till, now) then
          local owner = string.match(redis.call('HGET', I, id) or '', '^([^|]*)|') or ''
          table.insert(ends, {over, hex(m, 74) * 1000 + hex(m, 82) * 1000, owner .. '|', order[id]})
        end
        drop_holder(holds)
      end
    elseif waits then
      drop_waiter(waits)
    else
      redis.call('ZREM', U, id)
    end
  end
  table.sort(ends, function(a, b) return a[4] < b[4] end)
  for _, one in ipairs(ends) do keep_shut(one[1], one[2], one[3]) end
  if #ends > 0 then mark() end
  if shut and shut.till <= now then
    redis.call('HDEL', I, 's')
    shut, freed = nil, true
  end
  if freed and #holders == 0 and not shut then mark() end
end

-- Reads the name whose keys these are. Answers what to tell instead, if there is no going on.
local function begin(keys, from, base)
  K, P, H, U, I, BASE = keys[from], keys[from + 1], keys[from + 2], keys[from + 3], keys[from + 4], base
  stands, freed, plain, foreign, left = redis.pcall('GET', K), false, nil, false, -2
  if type(stands) == 'table' then
    if string.sub(stands.err, 1, 9) ~= 'WRONGTYPE' then return stands end
    return {'T', now, redis.call('TYPE', K).ok}
  end
  if stands then
    left = life_of(K)
    plain = parse(stands)
    if plain and (left < 0 or left * 1000 > plain.ttl) then
      left = plain.ttl / 1000
      redis.call('PEXPIRE', K, ms(plain.ttl))
    end
    foreign = not plain and stands ~= OCCUPIED
  end
  waiters, holders = redis.call('ZRANGE', P, 0, -1), redis.call('ZRANGE', H, 0, -1)
  read_shut()
  if #waiters + #holders > 0 then
    cut()
    sweep()
  elseif shut and shut.till <= now then
    sweep()
  end
  if stands == OCCUPIED and #holders == 0 and not shut then mark() end
end

-- Whether the mark of those who hold was taken away: then they have lost, and all wait until they have ended.
local function broken() return #holders > 0 and stands ~= OCCUPIED end

-- What is ahead of the waiter at `mine`, or of a newcomer with this turn: how much, under which limit, how many.
local function ahead_of(mine, turn)
  local taken, limit, count = 0, WHOLE, 0
  if plain or foreign then taken, count = WHOLE, 1 end
  local function add(m)
    local take, of = claims_of(m)
    taken, limit, count = taken + take, math.min(limit, of), count + 1
  end
  for _, m in ipairs(holders) do add(m) end
  for at = 1, mine and mine - 1 or #waiters do
    local m = waiters[at]
    if mine or turn == 'F' or string.sub(m, 33, 33) == 'F' or now - since_of(m) >= LONG then add(m) end
  end
  return taken, limit, count
end

-- What the holders but the one at `mine` take.
local function others_of(mine)
  local taken, limit, count = 0, WHOLE, 0
  for at, m in ipairs(holders) do
    if at ~= mine then taken, limit, count = taken + take_of(m), math.min(limit, limit_of(m)), count + 1 end
  end
  return taken, limit, count
end

-- For how long something in the way surely stands.
local function first_to_lapse(mine)
  local first
  if stands and left > 0 then first = left * 1000 end
  local soon = redis.call('ZRANGE', U, 0, 1, 'WITHSCORES')
  for at = 1, #soon, 2 do
    local till = tonumber(soon[at + 1]) - now
    if soon[at] ~= mine and (not first or till < first) then first = till end
  end
  return first or -1
end

-- Tells a process, and answers whether surely nobody heard it. In a cluster a channel of the slot is told where those
-- who listen are; where there is none, they may be at another node.
local function tell(channel, id)
  if string.sub(channel, 1, 9) == 'lh:wake:{' then return redis.call('SPUBLISH', channel, id) == 0 end
  return redis.call('PUBLISH', channel, id) == 0 and string.sub(channel, 9, 9) ~= '~'
end

-- Tells whose turn has come, and only those. A place whose process does not listen is no place.
local function wake()
  if shut or plain or foreign or broken() then return end
  for at, m in ipairs(holders) do
    local wanted, of = hex(m, 50), hex(m, 58)
    if wanted > 0 then
      local taken, limit = others_of(at)
      local channel = redis.call('HGET', I, 'c' .. id_of(m))
      if channel and taken + wanted <= math.min(limit, of) then tell(channel, id_of(m)) end
    end
  end
  local taken, limit = 0, WHOLE
  for _, m in ipairs(holders) do
    local take, of = claims_of(m)
    taken, limit = taken + take, math.min(limit, of)
  end
  local at = 1
  while at <= #waiters and taken + 1 <= limit do
    local m, deaf = waiters[at], false
    if taken + take_of(m) <= math.min(limit, limit_of(m)) then
      local channel = redis.call('HGET', I, 'c' .. id_of(m))
      deaf = channel and tell(channel, id_of(m))
    end
    if deaf then
      drop_waiter(at)
    else
      taken, limit, at = taken + take_of(m), math.min(limit, limit_of(m)), at + 1
    end
  end
end
