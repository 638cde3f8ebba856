local WHOLE = 536870911 -- what an exclusive claim takes
local OCCUPIED = 'leasehold:occupied' -- stands under a plain key whose holders are in the line
