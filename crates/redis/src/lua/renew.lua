-- Prolongs plain leases, without memory unless a tenure changed. KEYS: for each the plain key and its tombstone.
-- ARGV: for each its id, its ttl in milliseconds, and its tenure: token, count, note.
-- Answers for each 1: kept, 0: lost, 2: it may be in the line.
local time = redis.call('TIME')
local answers = {time[1] * 1000000 + time[2]}
for at = 1, #KEYS / 2 do
  local key, id, ttl, tenure = KEYS[2 * at - 1], ARGV[3 * at - 2], ARGV[3 * at - 1], ARGV[3 * at]
  local stands = redis.pcall('GET', key)
  if type(stands) == 'string' and string.sub(stands, 1, 33) == id .. '|' then
    redis.call('PEXPIRE', key, ttl - 1)
    redis.call('PEXPIRE', KEYS[2 * at], string.format('%.0f', 2 * ttl + 9999))
    if string.sub(stands, -#tenure - 1) ~= '|' .. tenure then
      local head, old = string.match(stands, '^(%x+|%d+|%d+|%d+|%d+|%d+|%d+|[^|]*)|(%d+)|')
      local token, rest = string.match(tenure, '^(%d+)(|.*)$')
      -- One that was sent before the lease got a new token knows the old one only.
      if head and tonumber(old) > tonumber(token) then token = old end
      local value = head and head .. '|' .. token .. rest
      -- For those who look; a full server may refuse it.
      if value and value ~= stands then redis.pcall('SET', key, value, 'PX', ttl - 1) end
    end
    answers[at + 1] = 1
  elseif stands == OCCUPIED then
    answers[at + 1] = 2
  elseif type(stands) == 'table' and string.sub(stands.err, 1, 9) ~= 'WRONGTYPE' then
    return stands
  else
    answers[at + 1] = 0
  end
end
return answers
