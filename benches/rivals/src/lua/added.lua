-- The same, but what is in use is added to, as the engine does.
local text = format('%d', cost)
for at = 1, #keys do
  local stored, level = call('GET', keys[at]), 0
  if stored then
    level = max((string.sub(stored, 1, 16) - now_us) * 1000 + string.sub(stored, -3), 0)
  end
  local ahead = level + cost
  if ahead <= capacity and level > 0 then
    call('INCRBY', keys[at], text)
    call('PEXPIREAT', keys[at], format('%d', now_ms + ahead / 1000000 + 2))
  elseif ahead <= capacity then
    local ns = ahead % 1000
    local value = format('%d%03d', now_us + (ahead - ns) / 1000, ns)
    call('PSETEX', keys[at], format('%d', ahead / 1000000 + 2), value)
  end
  tell(ahead <= capacity and 1 or 0, level)
end
