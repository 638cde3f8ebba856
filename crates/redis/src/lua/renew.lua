-- Prolongs plain leases. KEYS: for each the plain key and its tombstone. ARGV: for each its id, its ttl, its tenure.
-- Answers for each what became of it.
local time = redis.call('TIME')
local answers = {time[1] * 1000000 + time[2]}
for at = 1, #KEYS / 2 do
  local became = renew(KEYS[2 * at - 1], ARGV[3 * at - 2], ARGV[3 * at - 1], ARGV[3 * at], KEYS[2 * at])
  if type(became) == 'table' then return became end
  answers[at + 1] = became
end
return answers
