-- As the engine keeps it, in 19 digits, written anew each time.
for at = 1, #keys do
  local stored, level = call('GET', keys[at]), 0
  if stored then
    level = max((string.sub(stored, 1, 16) - now_us) * 1000 + string.sub(stored, -3), 0)
  end
  local ahead = level + cost
  if ahead <= capacity then
    local ns = ahead % 1000
    local value = format('%d%03d', now_us + (ahead - ns) / 1000, ns)
    call('PSETEX', keys[at], format('%d', ahead / 1000000 + 2), value)
  end
  tell(ahead <= capacity and 1 or 0, level)
end
