-- What stands under each of these keys: how its text starts, as far as an id of ours goes; its type; what is left of it.
local found = {}
for at, key in ipairs(KEYS) do
  local text = redis.pcall('GET', key)
  local kind = 'string'
  if type(text) == 'table' then
    text, kind = '', redis.call('TYPE', key).ok
  end
  found[at] = {string.sub(text or '', 1, 33), text and kind or 'none', redis.call('PTTL', key)}
end
return found
