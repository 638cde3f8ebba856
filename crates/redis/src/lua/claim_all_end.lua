local count = (#KEYS - 1) / 7
local function each(at)
  local from = 2 + 7 * (at - 1)
  local c = claim_of(16 * (at - 1), KEYS[from + 5], KEYS[from + 6])
  c.turn = 'N'
  return c, begin(KEYS, from, ARGV[16 * at])
end
local GRANTS = {grant = true, raise = true, shrink = true, grow = true, succeed = true}
GRANTS['repeat'] = true
for at = 1, count do
  local c, no = each(at)
  local verdict = not no and judge(c)
  if freed and not no then wake() end
  if no then return {'N', now, at - 1, no} end
  if not GRANTS[verdict[1]] then
    -- Carrying these out leaves nothing, but for a wish to grow, which is not left either.
    if verdict[1] == 'want' then return {'N', now, at - 1, {'w', now, verdict[3], first_to_lapse(c.id)}} end
    return {'N', now, at - 1, carry_out(c, verdict)}
  end
end
local replies = {}
for at = 1, count do
  local c = each(at)
  replies[at] = carry_out(c, judge(c))
  if freed then wake() end
end
return {'A', now, replies}
