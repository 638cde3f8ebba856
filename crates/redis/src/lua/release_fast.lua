-- The head of release.lua: a plain lease that nobody waits for. KEYS: plain, line (4), tombstone. ARGV: id, for how
-- many milliseconds to leave the name shut, why, base, our channel.
if ARGV[2] == '0' then
  local stands = redis.pcall('GET', KEYS[1])
  if type(stands) == 'string' and string.sub(stands, 1, 33) == ARGV[1] .. '|'
    and redis.call('EXISTS', KEYS[5]) == 0 then
    redis.call('DEL', KEYS[1])
    if redis.call('PEXPIRE', KEYS[6], 9999) == 0 then redis.pcall('SET', KEYS[6], '1', 'PX', 9999) end
    return {'R'}
  end
end
