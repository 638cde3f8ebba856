local count = (#KEYS - 1) / 7
local function each(at)
  local from = 2 + 7 * (at - 1)
  local c = claim_of(17 * (at - 1), KEYS[from + 5], KEYS[from + 6])
  c.turn = 'N'
  return c, begin(KEYS, from, ARGV[17 * at])
end
local GRANTS = {grant = true, raise = true, less = true, grow = true, succeed = true}
for at = 1, count do
  local c, no = each(at)
  local verdict = not no and judge(c)
  if freed and not no then wake() end
  if no then return {'N', now, at - 1, no} end
  if not GRANTS[verdict[1]] then
    return {'N', now, at - 1, refusal(c, verdict)}
  end
end
local replies = {}
for at = 1, count do
  local c = each(at)
  replies[at] = carry_out(c, judge(c))
  if freed then wake() end
end
return {'A', now, replies}
