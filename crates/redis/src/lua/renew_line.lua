-- Prolongs leases whose holders are in the line. KEYS: for each the plain key, the line (4), the tombstone. ARGV:
-- for each id, base, token, count, note.
local answers = {now}
for at = 1, #KEYS / 6 do
  local from, id = 6 * at - 5, ARGV[5 * at - 4]
  local no = begin(KEYS, from, ARGV[5 * at - 3])
  if no and not no[1] then return no end
  local holds = not no and index_of(holders, id)
  if holds and not broken() then
    local m = holders[holds]
    local ttl = ttl_of(m)
    -- The tombstone remembers what a full server refuses to write down.
    redis.call('PEXPIRE', KEYS[from + 5], ms(2 * ttl + TOMB))
    redis.pcall('ZADD', U, num(now + ttl), id)
    local lasts = end_of(m, now + ttl) - now
    if lasts > left * 1000 then redis.call('PEXPIRE', K, ms(lasts)) end
    keep(lasts)
    local first, run, renewals, token = string.match(redis.call('HGET', I, 'g' .. id) or '', '^(%d+)|(%d+)|(%d+)|(%d+)|')
    if first then
      token = num(math.max(tonumber(token), tonumber(ARGV[5 * at - 2])))
      local owner = string.match(redis.call('HGET', I, id) or '', '^([^|]*)|') or ''
      redis.pcall('HSET', I, id, owner .. '|' .. ARGV[5 * at], 'g' .. id, table.concat({first, run,
        num(math.min(tonumber(renewals) + 1, 4294967295)), token, ARGV[5 * at - 1]}, '|'))
    end
    answers[at + 1] = 1
  elseif plain and not no and plain.id == id then
    answers[at + 1] = 2
  else
    -- Whoever is told so holds nothing, whatever becomes of the mark.
    if holds then drop_holder(holds) end
    answers[at + 1] = 0
  end
  if freed then wake() end
end
return answers
