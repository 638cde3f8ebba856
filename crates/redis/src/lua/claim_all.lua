-- States several claims as one. KEYS: tokens; for each the plain key, the line (4) and two tombstones. ARGV: for
-- each the claim (16) and its base.
local TOKENS = KEYS[1]
