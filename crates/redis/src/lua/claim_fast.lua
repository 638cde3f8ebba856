-- The head of claim.lua: what nearly every claim is, with as few steps as there can be. Nobody stands in the
-- line, and the claim wants all of a name for itself.
if ARGV[1] == '1' then
  local stands = redis.pcall('GET', KEYS[1])
  local simple = stands == false or (type(stands) == 'string' and ARGV[5] == 'N' and stands ~= OCCUPIED
    and string.sub(stands, 1, 33) ~= ARGV[2] .. '|')
  if simple and redis.call('EXISTS', KEYS[6], KEYS[5]) == 0 then
    local time = redis.call('TIME')
    local now = time[1] * 1000000 + time[2]
    if ARGV[12] ~= '' and now > tonumber(ARGV[12]) then
      return {'L', now}
    end
    if stands then
      return {'w', now, 1, (redis.call('PTTL', KEYS[1]) + 1) * 1000}
    end
    -- The counter has no other reader while we run, so it is set before it is known that the clock suffices.
    local run, seen = tonumber(ARGV[9]), tonumber(ARGV[10]) or 0
    local last = tonumber(redis.call('GETSET', KEYS[7], string.format('%.0f', now + run - 1)) or 0)
    local first = math.max(last + 1, seen <= now + 86400000000 and seen + 1 or 0)
    if first > now then
      run = 1
      if first >= 9007199254740992 then
        redis.call('SET', KEYS[7], string.format('%.0f', last))
        return {'N', now}
      end
      redis.call('SET', KEYS[7], string.format('%.0f', first))
    else
      first = now
    end
    local token = string.format('%.0f', first)
    local value = table.concat({ARGV[2], 1, token, run, ARGV[6], string.format('%.0f', now), ARGV[17], ARGV[7],
      token, 1,
      ARGV[8]}, '|')
    redis.call('SET', KEYS[1], value, 'PX', ARGV[6] - 1)
    redis.call('SET', KEYS[6], '1', 'PX', string.format('%.0f', 2 * ARGV[6] + 9999))
    return {'g', now, first, run, ARGV[6] * 1000}
  end
end
