-- Which commands this user may not have a script call. KEYS: a key that is not there, and is gone again afterwards;
-- ARGV: channels that nobody hears: of the server, and of the slot in a cluster. Answers pairs of a command and what the server says to it.
local k, no = KEYS[1], {}
local function try(...)
  local answer = redis.pcall(...)
  if type(answer) == 'table' and answer.err then
    no[#no + 1], no[#no + 2] = (...), answer.err
    return false
  end
  return true
end
try('TIME') try('GET', k) try('EXISTS', k) try('PTTL', k) try('TYPE', k)
try('PUBLISH', ARGV[1], '')
if ARGV[2] ~= '' then try('SPUBLISH', ARGV[2], '') end
-- What cannot be taken away is not left lying about.
if try('DEL', k) then
  try('SET', k, '1', 'PX', 60000) try('GETSET', k, '1') try('PEXPIRE', k, 60000) try('PEXPIREAT', k, 1)
  redis.call('DEL', k)
  try('HSET', k, 'a', '1') try('HGET', k, 'a') try('HMGET', k, 'a') try('HGETALL', k) try('HDEL', k, 'a')
  redis.call('DEL', k)
  try('ZADD', k, 1, 'a') try('ZCARD', k) try('ZSCORE', k, 'a') try('ZRANGE', k, 0, 0) try('ZREVRANGE', k, 0, 0)
  try('ZRANGEBYSCORE', k, 0, 0) try('ZREVRANGEBYSCORE', k, 0, 0) try('ZREM', k, 'a')
  redis.call('DEL', k)
end
return no
