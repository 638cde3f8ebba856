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
-- The counter of one name goes a week after its value: whoever proposes by a clock proposes higher by then.
local function count_to(proposed)
  redis.call('SET', TOKENS, num(proposed))
  redis.call('PEXPIREAT', TOKENS, num(math.floor(proposed / 1000) + 604800000))
end

local function excludes_own_kind(m) return 2 * take_of(m) > limit_of(m) end

-- Whether the tokens of a new tenure can be had: by the counter, or as proposed. If not, what to answer.
local function refused(c)
  if not c.proposed then return nil end
  local last = tonumber(redis.call('GET', TOKENS) or 0)
  if not accepts(c.proposed, last) then return {'r', last > 0 and last or c.proposed} end
end

-- A claim that holds already: a repeat, or a change of its share.
local function rejudge(c, holds)
  local take, of, reshape = WHOLE, WHOLE, plain and plain.reshape
  if holds then
    take, of, reshape = take_of(holders[holds]), limit_of(holders[holds]), reshape_of(holders[holds])
  end
  -- A first statement that was under way for long would make the writer of today a reader behind his back.
  if c.reshape < reshape then return {'U'} end
  if c.of ~= of then
    return {(c.of ~= WHOLE and of ~= WHOLE) and 'D' or 'K', take, of}
  end
  if c.take > take then
    if not excludes_own_kind(holders[holds]) then return {'C', take, of} end
    local taken, limit, count = others_of(holds)
    -- A reader that died may still be reading; to write is to begin anew.
    if shut then return {'want', holds, count} end
    if taken + c.take > math.min(limit, c.of) then return {'want', holds, count} end
    return refused(c) or {'grow', holds}
  end
  if c.proposed then
    local token = plain and plain.token or tonumber(string.match(redis.call('HGET', I, 'g' .. c.id), '^%d+|%d+|%d+|(%d+)|'))
    local last = tonumber(redis.call('GET', TOKENS) or 0)
    local raised = c.proposed > token and accepts(c.proposed, last)
    if not raised and c.proposed ~= token then return {'r', last > 0 and last or token, holds = holds} end
    return {'raise', holds, raised}
  end
  return {'less', holds}
end

-- Where claim `c` stands, as {what, ..}.
local function judge(c)
  if c.not_after and now > c.not_after then return {'L'} end
  local mine = index_of(waiters, c.id)
  local holds = index_of(holders, c.id)
  local is_plain = plain and plain.id == c.id
  if not (mine or holds or is_plain) and redis.call('EXISTS', c.x) == 1 then return {'x'} end
  if holds and broken() then return {'x'} end
  if holds or is_plain then return rejudge(c, holds) end
  if c.old then
    local old = index_of(holders, c.old)
    local take, of = WHOLE, WHOLE
    if old and not broken() then
      take, of = take_of(holders[old]), limit_of(holders[old])
    elseif not (plain and plain.id == c.old) then
      return {'gone', mine}
    end
    -- Otherwise asking again, when the reply was lost, would change the share.
    if take ~= c.take or of ~= c.of then return {'O', take, of} end
    return refused(c) or {'succeed', old, mine}
  end
  if mine and (take_of(waiters[mine]) ~= c.take or limit_of(waiters[mine]) ~= c.of) then
    return {'O', take_of(waiters[mine]), limit_of(waiters[mine])}
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
  if broken() or taken + c.take > math.min(limit, c.of) then
    if not mine and c.turn ~= 'N' then count = #holders + #waiters + ((plain or foreign) and 1 or 0) end
    return {'wait', mine, count}
  end
  return refused(c) or {'grant', mine}
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
      reshape = c.reshape, token = first, count = 1, note = c.note}
    stands, left = unparse(plain), lasting / 1000
    redis.call('SET', K, stands, 'PX', ms(lasting))
  else
    local m = member(c, take, of, now)
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
  local m = member(c, c.take, c.of, now)
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

-- A held lease is written anew: with this share, this wish, and the number of this statement.
local function rewrite(c, holds, take, of, wtake, wof)
  if holds then
    local m = reshaped(holders[holds], take, of, wtake, wof, c.reshape)
    if m ~= holders[holds] then replace_holder(holds, m) end
  elseif plain.reshape ~= c.reshape then
    plain.reshape = c.reshape
    stands = unparse(plain)
    redis.call('SET', K, stands, 'PX', ms(left * 1000))
  end
end
-- Whether it had a wish, which is given up.
local function give_up(c, holds)
  if not holds or hex(holders[holds], 50) == 0 then return end
  redis.call('HDEL', I, 'c' .. c.id)
  freed = true
end
local function take_or_propose(c)
  if not c.proposed then return take_tokens(c) end
  count_to(c.proposed)
  return c.proposed, 1
end
-- Takes a place in line back without waking anybody for it.
local function withdraw(mine)
  local was = freed
  drop_waiter(mine)
  freed = was
end
local function closed(what)
  local owner, note = string.match(shut.rest, '^([^|]*)|(.*)$')
  return {what, now, shut.till - now, owner, note}
end

local DO = {}
function DO.grant(c, v)
  local first, run = take_or_propose(c)
  if not first then return {'N', now} end
  local mine = v[2]
  local place = mine and tonumber(redis.call('ZSCORE', P, waiters[mine])) or (#waiters + #holders == 0 and 1 or next_place())
  -- Only a claim that has waited may have died while nobody looked.
  local lasting = mine and math.min(c.ttl, SHORT) or c.ttl
  if mine then
    -- What it stood there with goes on.
    local m = waiters[mine]
    c.reshape, c.delay, c.least = reshape_of(m), hex(m, 74), hex(m, 82)
    withdraw(mine)
  end
  hold(c, place, c.take, c.of, first, run, lasting)
  return granted(first, run, lasting)
end
function DO.wait(c, v)
  -- Whoever holds a foreign key tells nobody of its end, so the first in line has to listen for it.
  local reply = {'w', now, v[3], first_to_lapse(c.id), foreign and v[3] == 1 and 1 or 0}
  stay(c, v[2])
  return reply
end
function DO.shut(c, v)
  stay(c, v[2])
  return closed('s')
end
function DO.raise(c, v)
  local holds, raised = v[2], v[3]
  if raised then count_to(c.proposed) end
  local run = holds and tonumber(string.match(redis.call('HGET', I, 'g' .. c.id), '^%d+|(%d+)|')) or plain.run
  set_token(c.id, holds, c.proposed, run)
  if holds then
    redis.call('ZADD', U, num(now + c.ttl), c.id)
    give_up(c, holds)
    if take_of(holders[holds]) ~= c.take then freed = true end
    rewrite(c, holds, c.take, c.of, 0, 0)
    mark()
  else
    left, plain.reshape = c.ttl / 1000, c.reshape
    stands = unparse(plain)
    redis.call('SET', K, stands, 'PX', ms(c.ttl))
  end
  bury(c.x, 2 * c.ttl + TOMB)
  return repeated(holds)
end
function DO.less(c, v)
  local holds = v[2]
  give_up(c, holds)
  if holds then
    if take_of(holders[holds]) ~= c.take then freed = true end
    rewrite(c, holds, c.take, c.of, 0, 0)
    return repeated(holds)
  end
  if c.take == WHOLE then
    rewrite(c)
    return repeated()
  end
  -- From here on others may hold beside it, so it moves into the line.
  freed = true
  local p = plain
  p.turn, p.delay, p.least, p.reshape = 'A', 0, 0, c.reshape
  local m = member(p, c.take, c.of, p.since)
  redis.call('ZADD', H, num(p.place), m)
  redis.call('ZADD', U, num(now + left * 1000), p.id)
  redis.call('HSET', I, p.id, p.owner .. '|' .. p.note, 'g' .. p.id,
    num(p.first) .. '|' .. num(p.run) .. '|0|' .. num(p.token) .. '|' .. num(p.count))
  redis.call('SET', K, OCCUPIED, 'PX', ms(left * 1000))
  holders, plain, stands = {m}, nil, OCCUPIED
  keep(left * 1000)
  return repeated(1)
end
function DO.grow(c, v)
  local holds = v[2]
  -- Who wrote under the old token before may be a reader that was paused.
  c.tokens = 1
  local first = take_or_propose(c)
  if not first then return {'N', now} end
  redis.call('HDEL', I, 'c' .. c.id)
  rewrite(c, holds, c.take, c.of, 0, 0)
  set_token(c.id, holds, first, 1)
  return repeated(holds)
end
function DO.want(c, v)
  local holds = v[2]
  local m = holders[holds]
  -- A try leaves no wish, nor the one before it: what was stated last counts.
  local stays = c.turn ~= 'N'
  if stays then
    rewrite(c, holds, take_of(m), limit_of(m), c.take, c.of)
    if c.channel ~= '' then redis.call('HSET', I, 'c' .. c.id, c.channel) end
  else
    give_up(c, holds)
    rewrite(c, holds, take_of(m), limit_of(m), 0, 0)
  end
  -- The wait for more ends with the own lease, too, so that is not left out.
  local first = first_to_lapse()
  if shut then
    local reply = closed(stays and 'S' or 's')
    reply[6] = first
    return reply
  end
  return {stays and 'W' or 'w', now, v[3], first}
end
function DO.gone(c, v)
  -- Final: the same statement, arriving once more, must not take what somebody gets under the old id later.
  if v[2] then drop_waiter(v[2]) end
  bury(c.x, TOMB)
  return {'x', now}
end
function DO.succeed(c, v)
  local first, run = take_or_propose(c)
  if not first then return {'N', now} end
  local old, place, ttl = v[2], nil, nil
  if v[3] then drop_waiter(v[3]) end
  local was = freed
  if old then
    local m = holders[old]
    place, ttl = tonumber(redis.call('ZSCORE', H, m)), ttl_of(m)
    if hex(m, 50) > 0 then was = true end
    redis.call('HDEL', I, 'c' .. c.old)
    drop_holder(old)
  else
    place, ttl = plain.place, plain.ttl
    plain = nil
  end
  freed = was
  hold(c, place, c.take, c.of, first, run, c.ttl)
  -- The name may have been taken for longer by whom it succeeds.
  if old and not plain then mark() end
  bury(c.old_x, ttl + TOMB)
  return granted(first, run, c.ttl)
end

-- Carries a verdict out.
local function carry_out(c, v)
  local act = DO[v[1]]
  if act then return act(c, v) end
  return {v[1], now, v[2], v[3]}
end
-- What is told of a verdict that grants nothing, without anything being left of it.
local function refusal(c, v)
  if v[1] == 'gone' then return {'x', now} end
  if v[1] == 'shut' or (v[1] == 'want' and shut) then return closed('s') end
  if v[1] == 'wait' or v[1] == 'want' then return {'w', now, v[3], first_to_lapse(c.id)} end
  return {v[1], now, v[2], v[3]}
end

-- A claim from its arguments: they start after `from`, its tombstones are these keys.
local function claim_of(from, x, old_x)
  local a = {unpack(ARGV, from + 1, from + 16)}
  return {id = a[1], take = tonumber(a[2]), of = tonumber(a[3]), turn = a[4], ttl = a[5] * 1000, owner = a[6],
    note = a[7], tokens = tonumber(a[8]), seen = tonumber(a[9]) or 0, proposed = tonumber(a[10]),
    not_after = tonumber(a[11]), old = a[12] ~= '' and a[12] or nil, delay = tonumber(a[13]),
    least = tonumber(a[14]), channel = a[15], reshape = tonumber(a[16]), x = x, old_x = old_x}
end
