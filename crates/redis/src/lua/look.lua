-- One name as it stands; nothing is changed. KEYS: plain, line (4).
local time = redis.call('TIME')
local stands = redis.pcall('GET', KEYS[1])
if type(stands) == 'table' then
  if string.sub(stands.err, 1, 9) ~= 'WRONGTYPE' then return stands end
  return {'T', time[1], redis.call('TYPE', KEYS[1]).ok}
end
return {'l', time[1] * 1000000 + time[2], stands or '', stands and redis.call('PTTL', KEYS[1]) or -2,
  redis.call('ZRANGE', KEYS[2], 0, -1, 'WITHSCORES'), redis.call('ZRANGE', KEYS[3], 0, -1, 'WITHSCORES'),
  redis.call('ZRANGE', KEYS[4], 0, -1, 'WITHSCORES'), redis.call('HGETALL', KEYS[5])}
