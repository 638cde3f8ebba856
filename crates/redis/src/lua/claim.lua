-- States a claim. KEYS: plain, line (4), tombstone, tokens, tombstone of whom it succeeds. ARGV: fast, the claim
-- (16), base.
local TOKENS = KEYS[7]
