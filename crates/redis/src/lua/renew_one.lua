-- Prolongs one plain lease, without memory unless a tenure changed: its key, its id, its ttl in milliseconds, its tenure
-- (token, count, note), and its tombstone if it is to be prolonged as well. Gives 1: kept, 0: lost, 2: it may be in the
-- line; or an error.
local function renew(key, id, ttl, tenure, tombstone)
  local stands = redis.pcall('GET', key)
  if type(stands) == 'string' and string.sub(stands, 1, 33) == id .. '|' then
    redis.call('PEXPIRE', key, ttl - 1)
    if tombstone then redis.call('PEXPIRE', tombstone, string.format('%.0f', 2 * ttl + 9999)) end
    if string.sub(stands, -#tenure - 1) ~= '|' .. tenure then
      local head, old = string.match(stands, '^(%x+|%d+|%d+|%d+|%d+|%d+|%d+|[^|]*)|(%d+)|')
      local token, rest = string.match(tenure, '^(%d+)(|.*)$')
      -- One that was sent before the lease got a new token knows the old one only.
      if head and tonumber(old) > tonumber(token) then token = old end
      local value = head and head .. '|' .. token .. rest
      -- For those who look; a full server may refuse it.
      if value and value ~= stands then redis.pcall('SET', key, value, 'PX', ttl - 1) end
    end
    return 1
  elseif stands == OCCUPIED then
    return 2
  elseif type(stands) == 'table' and string.sub(stands.err, 1, 9) ~= 'WRONGTYPE' then
    return stands
  end
  return 0
end
