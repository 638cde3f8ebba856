-- Makes a mark unless one stands. KEYS: the marks of this name and kind. ARGV: key, for how many microseconds, by,
-- text. Answers when it was made, or the one that stands.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local all = redis.call('HGETALL', KEYS[1])
local last = 0
for at = 1, #all, 2 do
  local till = tonumber(string.match(all[at + 1], '^%d+|(%d+)|') or 0)
  if till <= now then
    redis.call('HDEL', KEYS[1], all[at])
  elseif all[at] == ARGV[1] then
    return {now, all[at + 1]}
  else
    last = math.max(last, till)
  end
end
local till = now + ARGV[2]
redis.call('HSET', KEYS[1], ARGV[1], string.format('%.0f|%.0f|%s|%s', now, till, ARGV[3], ARGV[4]))
redis.call('PEXPIREAT', KEYS[1], string.format('%.0f', math.ceil(math.max(last, till) / 1000)))
return {now}
