-- Writes down what happened. KEYS: the last id, all ids, all records, the ids of this name. ARGV: kind, name, by,
-- text, and where the ids of names are. Ids rise over all names, and over a store that forgot.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local id = string.format('%.0f', math.max(tonumber(redis.call('GET', KEYS[1]) or 0) + 1, now))
redis.call('SET', KEYS[1], id)
redis.call('HSET', KEYS[3], id, table.concat({string.format('%.0f', now), ARGV[1], ARGV[2], ARGV[3], ARGV[4]}, '\31'))
redis.call('ZADD', KEYS[2], id, id)
redis.call('ZADD', KEYS[4], id, id)
local function forget(old, ids)
  redis.call('HDEL', KEYS[3], old)
  redis.call('ZREM', KEYS[2], old)
  redis.call('ZREM', ids, old)
end
if redis.call('ZCARD', KEYS[4]) > 1000 then
  forget(redis.call('ZRANGE', KEYS[4], 0, 0)[1], KEYS[4])
end
-- Names that nobody uses any more must not pile up for ever.
if redis.call('ZCARD', KEYS[2]) > 200000 then
  local old = redis.call('ZRANGE', KEYS[2], 0, 0)[1]
  local name = string.match(redis.call('HGET', KEYS[3], old) or '', '^[^\31]*\31[^\31]*\31([^\31]*)\31')
  forget(old, ARGV[5] .. (name or ''))
end
return id
