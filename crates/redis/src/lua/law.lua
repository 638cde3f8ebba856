-- How a claim is judged and carried out. `judge` writes nothing but what `begin` swept, so that several names can
-- be judged before any is granted.
local FAR = 9007199254740992

-- max(last + 1, microseconds of the clock, highest seen + 1); a run only while the counter is not ahead.
local function take_tokens(c)
  local last = tonumber(redis.call('GET', TOKENS) or 0)
  local floor = math.max(last + 1, c.seen <= now + 86400000000 and c.seen + 1 or 0)
  local run = floor > now and 1 or math.max(c.tokens, 1)
  local first = math.max(floor, now)
  if first + run - 1 >= FAR then return nil end
  redis.call('SET', TOKENS, num(first + run - 1))
  return first, run
end
-- Whether a node of a quorum may take this proposal.
local function accepts(proposed, last)
  return proposed <= now + 3600000000 and proposed > last
end

local function excludes_own_kind(m) return 2 * take_of(m) > limit_of(m) end

-- Where claim `c` stands, as {what, ..}.
local function judge(c)
  if c.not_after and now > c.not_after then return {'L'} end
  local mine = index_of(waiters, c.id)
  local holds = index_of(holders, c.id)
  local is_plain = plain and plain.id == c.id
  if not (mine or holds or is_plain) then
    if redis.call('EXISTS', c.x) == 1 then return {'x'} end
    if c.old then
      local old = index_of(holders, c.old)
      if (plain and plain.id == c.old) or (old and not broken()) then return {'succeed', old} end
      return {'x'}
    end
  end
  if holds and broken() then return {'x'} end
  if holds or is_plain then
    local take, of = WHOLE, WHOLE
    if holds then take, of = take_of(holders[holds]), limit_of(holders[holds]) end
    if c.take == take and c.of == of then
      if c.proposed then
        local token = plain and plain.token or tonumber(string.match(redis.call('HGET', I, 'g' .. c.id), '^%d+|%d+|%d+|(%d+)|'))
        local last = tonumber(redis.call('GET', TOKENS) or 0)
        local raised = c.proposed > token and accepts(c.proposed, last)
        if not raised and c.proposed ~= token then return {'r', last > 0 and last or token} end
        return {'raise', holds, raised}
      end
      return {'repeat', holds}
    end
    if c.of ~= of and c.of ~= WHOLE and of ~= WHOLE then return {'D', take, of} end
    if c.take < take then return {'shrink', holds} end
    if holds and not excludes_own_kind(holders[holds]) then return {'C', take, of} end
    local taken, limit, count = others_of(holds)
    if taken + c.take <= math.min(limit, c.of) then return {'grow', holds} end
    return {'want', holds, count}
  end
  if c.of ~= WHOLE then
    for _, list in ipairs({holders, waiters}) do
      for _, m in ipairs(list) do
        local of = limit_of(m)
        if of ~= c.of and of ~= WHOLE then return {'D', take_of(m), of} end
      end
    end
  end
  if shut then return {'shut', mine} end
  local taken, limit, count = ahead_of(mine, c.turn)
  if broken() or taken + c.take > math.min(limit, c.of) then return {'wait', mine, count} end
  if c.proposed then
    local last = tonumber(redis.call('GET', TOKENS) or 0)
    if not accepts(c.proposed, last) then return {'r', last > 0 and last or c.proposed} end
  end
  return {'grant', mine}
end

local function next_place()
  local last = 0
  for _, key in ipairs({P, H}) do
    local top = redis.call('ZREVRANGE', key, 0, 0, 'WITHSCORES')
    if #top > 0 then last = math.max(last, tonumber(top[2])) end
  end
  return math.max(last, plain and plain.place or 0) + 1
end

local function bury(x, us) redis.call('SET', x, '1', 'PX', ms(us)) end

-- Puts a claim among the holders, as a plain lease where that tells all there is to it.
local function hold(c, place, take, of, first, run, lasting)
  if take == WHOLE and c.delay + c.least == 0 and #holders == 0 then
    plain = {id = c.id, place = place, first = first, run = run, ttl = c.ttl, since = now, owner = c.owner,
      token = first, count = 1, note = c.note}
    stands, left = unparse(plain), lasting / 1000
    redis.call('SET', K, stands, 'PX', ms(lasting))
  else
    local m = member(c.id, c.turn, take, of, 0, 0, c.ttl / 1000, c.delay, c.least, now)
    local at = 1
    while holders[at] and tonumber(redis.call('ZSCORE', H, holders[at])) < place do at = at + 1 end
    table.insert(holders, at, m)
    redis.call('ZADD', H, num(place), m)
    redis.call('ZADD', U, num(now + lasting), c.id)
    redis.call('HSET', I, c.id, c.owner .. '|' .. c.note, 'g' .. c.id,
      num(first) .. '|' .. num(run) .. '|0|' .. num(first) .. '|1')
    plain = nil
    local lasts = end_of(m, now + lasting) - now
    if stands ~= OCCUPIED then
      redis.call('SET', K, OCCUPIED, 'PX', ms(lasts))
      stands, left = OCCUPIED, lasts / 1000
    elseif lasts > left * 1000 then
      redis.call('PEXPIRE', K, ms(lasts))
    end
    keep(lasts)
  end
  bury(c.x, lasting + c.ttl + TOMB)
end

local function join(c)
  local m = member(c.id, c.turn, c.take, c.of, 0, 0, c.ttl / 1000, c.delay, c.least, now)
  redis.call('ZADD', P, num(next_place()), m)
  redis.call('ZADD', U, num(now + PLACE), c.id)
  redis.call('HSET', I, c.id, c.owner .. '|' .. c.note)
  table.insert(waiters, m)
  keep(PLACE)
end
local function stay(c, mine)
  if mine then
    redis.call('ZADD', U, num(now + PLACE), c.id)
    keep(PLACE)
  elseif c.turn ~= 'N' then
    join(c)
  else
    return
  end
  if c.channel ~= '' then redis.call('HSET', I, 'c' .. c.id, c.channel) else redis.call('HDEL', I, 'c' .. c.id) end
end

local function granted(first, run, us) return {'g', now, first, run, us} end

-- What is left of a lease, and the grant again.
local function repeated(holds)
  if not holds then return granted(plain.first, plain.run, left * 1000) end
  local id = id_of(holders[holds])
  local first, run = string.match(redis.call('HGET', I, 'g' .. id), '^(%d+)|(%d+)|')
  return granted(tonumber(first), tonumber(run), tonumber(redis.call('ZSCORE', U, id)) - now)
end
local function replace_holder(holds, m)
  local place = redis.call('ZSCORE', H, holders[holds])
  redis.call('ZREM', H, holders[holds])
  redis.call('ZADD', H, place, m)
  holders[holds] = m
end
local function set_token(id, holds, first, run)
  if holds then
    local renewals, count = string.match(redis.call('HGET', I, 'g' .. id), '^%d+|%d+|(%d+)|%d+|(%d+)$')
    local token = num(first)
    redis.call('HSET', I, 'g' .. id, token .. '|' .. num(run) .. '|' .. renewals .. '|' .. token .. '|' .. count)
  else
    plain.first, plain.run, plain.token = first, run, first
  end
end

local DO = {}
function DO.grant(c, v)
  local first, run = c.proposed, 1
  if first then redis.call('SET', TOKENS, num(first)) else first, run = take_tokens(c) end
  if not first then return {'N', now} end
  local mine = v[2]
  local place = mine and tonumber(redis.call('ZSCORE', P, waiters[mine])) or (#waiters + #holders == 0 and 1 or next_place())
  -- Only a claim that has waited may have died while nobody looked.
  local lasting = mine and math.min(c.ttl, SHORT) or c.ttl
  if mine then
    local was = freed
    drop_waiter(mine)
    freed = was
  end
  hold(c, place, c.take, c.of, first, run, lasting)
  return granted(first, run, lasting)
end
function DO.wait(c, v)
  local reply = {'w', now, v[3], first_to_lapse(c.id)}
  stay(c, v[2])
  return reply
end
function DO.shut(c, v)
  local owner, note = string.match(shut.rest, '^([^|]*)|(.*)$')
  stay(c, v[2])
  return {'s', now, shut.till - now, owner, note}
end
DO['repeat'] = function(c, v)
  local holds = v[2]
  if holds and hex(holders[holds], 50) > 0 then
    local m = holders[holds]
    replace_holder(holds, reshaped(m, take_of(m), limit_of(m), 0, 0))
    redis.call('HDEL', I, 'c' .. c.id)
    freed = true
  end
  return repeated(holds)
end
function DO.raise(c, v)
  local holds, raised = v[2], v[3]
  if raised then redis.call('SET', TOKENS, num(c.proposed)) end
  local run = holds and tonumber(string.match(redis.call('HGET', I, 'g' .. c.id), '^%d+|(%d+)|')) or plain.run
  set_token(c.id, holds, c.proposed, run)
  if holds then
    redis.call('ZADD', U, num(now + c.ttl), c.id)
    mark()
  else
    left = c.ttl / 1000
    stands = unparse(plain)
    redis.call('SET', K, stands, 'PX', ms(c.ttl))
  end
  bury(c.x, 2 * c.ttl + TOMB)
  return repeated(holds)
end
function DO.shrink(c, v)
  local holds = v[2]
  freed = true
  if holds then
    replace_holder(holds, reshaped(holders[holds], c.take, c.of, 0, 0))
    redis.call('HDEL', I, 'c' .. c.id)
    return repeated(holds)
  end
  -- From here on others may hold beside it, so it moves into the line.
  local p = plain
  local m = member(p.id, 'A', c.take, c.of, 0, 0, p.ttl / 1000, 0, 0, p.since)
  redis.call('ZADD', H, num(p.place), m)
  redis.call('ZADD', U, num(now + left * 1000), p.id)
  redis.call('HSET', I, p.id, p.owner .. '|' .. p.note, 'g' .. p.id,
    num(p.first) .. '|' .. num(p.run) .. '|0|' .. num(p.token) .. '|' .. num(p.count))
  redis.call('SET', K, OCCUPIED, 'PX', ms(left * 1000))
  holders, plain, stands = {m}, nil, OCCUPIED
  mark()
  return repeated(1)
end
function DO.grow(c, v)
  local holds = v[2]
  -- Who wrote under the old token before may be a reader that was paused.
  c.tokens = 1
  local first = take_tokens(c)
  if not first then return {'N', now} end
  replace_holder(holds, reshaped(holders[holds], c.take, c.of, 0, 0))
  redis.call('HDEL', I, 'c' .. c.id)
  set_token(c.id, holds, first, 1)
  return repeated(holds)
end
function DO.want(c, v)
  local holds = v[2]
  local m = holders[holds]
  replace_holder(holds, reshaped(m, take_of(m), limit_of(m), c.take, c.of))
  if c.channel ~= '' then redis.call('HSET', I, 'c' .. c.id, c.channel) end
  return {'W', now, v[3], first_to_lapse(c.id)}
end
function DO.succeed(c, v)
  local first, run = take_tokens(c)
  if not first then return {'N', now} end
  local old, place, take, of, ttl = v[2], nil, WHOLE, WHOLE, nil
  local was = freed
  if old then
    local m = holders[old]
    place, take, of, ttl = tonumber(redis.call('ZSCORE', H, m)), take_of(m), limit_of(m), ttl_of(m)
    drop_holder(old)
    redis.call('HDEL', I, 'c' .. c.old)
  else
    place, ttl = plain.place, plain.ttl
    plain, stands = nil, false
  end
  freed = was
  hold(c, place, take, of, first, run, c.ttl)
  bury(c.old_x, ttl + TOMB)
  return granted(first, run, c.ttl)
end

-- Carries a verdict out.
local function carry_out(c, v)
  local act = DO[v[1]]
  if act then return act(c, v) end
  return {v[1], now, v[2], v[3]}
end

-- A claim from its arguments: they start after `from`, its tombstones are these keys.
local function claim_of(from, x, old_x)
  local a = {unpack(ARGV, from + 1, from + 15)}
  return {id = a[1], take = tonumber(a[2]), of = tonumber(a[3]), turn = a[4], ttl = a[5] * 1000, owner = a[6],
    note = a[7], tokens = tonumber(a[8]), seen = tonumber(a[9]) or 0, proposed = tonumber(a[10]),
    not_after = tonumber(a[11]), old = a[12] ~= '' and a[12] or nil, delay = tonumber(a[13]),
    least = tonumber(a[14]), channel = a[15], x = x, old_x = old_x}
end
