-- Ends a claim, whether it holds, waits or is unknown.
local no = begin(KEYS, 1, ARGV[4])
if no then return no end
local id, lasting, note, x = ARGV[1], ARGV[2] * 1000, ARGV[3], KEYS[6]
local holds, waits = index_of(holders, id), index_of(waiters, id)
local answer = 'O'
if plain and plain.id == id then
  -- What needs memory comes first: without it nothing has happened.
  if lasting > 0 then
    keep_shut(now + lasting, lasting, plain.owner .. '|' .. note)
    redis.call('SET', K, OCCUPIED, 'PX', ms(shut.till - now))
    stands, plain = OCCUPIED, nil
    mark()
  else
    redis.call('DEL', K)
    stands, plain = false, nil
  end
  freed, answer = true, 'R'
elseif holds then
  answer = 'R'
  local owner = string.match(redis.call('HGET', I, id) or '', '^([^|]*)|') or ''
  if lasting > 0 then keep_shut(now + lasting, lasting, owner .. '|' .. note) end
  if hex(holders[holds], 50) > 0 then redis.call('HDEL', I, 'c' .. id) end
  drop_holder(holds)
  mark()
elseif waits then
  answer = 'W'
  local channel = redis.call('HGET', I, 'c' .. id)
  if channel and channel ~= ARGV[5] then tell(channel, id) end
  drop_waiter(waits)
end
if freed then wake() end
-- It has a tombstone since its grant, so that this needs no memory.
if answer == 'R' and redis.call('PEXPIRE', x, 9999) == 1 then return {answer} end
if redis.call('PTTL', x) < 9999 and redis.call('PEXPIRE', x, 9999) == 0 then
  local told = redis.pcall('SET', x, '1', 'PX', 9999)
  if type(told) == 'table' and told.err and answer ~= 'R' then return told end
end
return {answer}
