-- Notes with what list of nodes a client came, and answers what others came with. KEYS: the lists. ARGV: this list, its
-- epoch. Answers the highest epoch and the list of it; after it, where ours is not behind, all other lists of our epoch
-- that somebody came with in the last day.
local mine, epoch = ARGV[1], tonumber(ARGV[2])
local now = tonumber(redis.call('TIME')[1])
local all = redis.call('HGETALL', KEYS[1])
local top, whose, old, others = epoch, mine, {}, {}
for i = 1, #all, 2 do
  local its, at = string.match(all[i + 1], '^(%d+) (%d+)$')
  its, at = tonumber(its or 0), tonumber(at or 0)
  if its > top then top, whose = its, all[i] end
  if all[i] ~= mine then
    if its < epoch or math.abs(now - at) > 86400 then
      old[#old + 1] = all[i]
    else
      others[#others + 1] = all[i]
    end
  end
end
if top > epoch then return {string.format('%.0f', top), whose} end
for _, list in ipairs(old) do redis.call('HDEL', KEYS[1], list) end
redis.call('HSET', KEYS[1], mine, string.format('%.0f %.0f', epoch, now))
table.insert(others, 1, mine)
table.insert(others, 1, string.format('%.0f', top))
return others
