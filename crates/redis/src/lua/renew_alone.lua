-- Prolongs one plain lease, and not its tombstone. KEYS: the plain key. ARGV: its id, its ttl, its tenure.
local time = redis.call('TIME')
local became = renew(KEYS[1], ARGV[1], ARGV[2], ARGV[3])
if type(became) == 'table' then return became end
return {time[1] * 1000000 + time[2], became}
