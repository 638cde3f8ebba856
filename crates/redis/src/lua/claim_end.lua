local c = claim_of(1, KEYS[6], KEYS[8])
local no = begin(KEYS, 1, ARGV[18])
if no then return no end
local reply = carry_out(c, judge(c))
if freed then wake() end
return reply
