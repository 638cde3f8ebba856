-- Takes a mark away. KEYS: the marks of this name and kind. ARGV: key. Answers whether one stood.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local stood = redis.call('HGET', KEYS[1], ARGV[1])
if not stood then return 0 end
redis.call('HDEL', KEYS[1], ARGV[1])
if tonumber(string.match(stood, '^%d+|(%d+)|') or 0) <= now then return 0 end
return 1
