-- Microseconds and nanoseconds in ten bytes, which are read and written faster than
-- digits, and take 16 bytes more for each caller: Redis keeps no integer then.
for at = 1, #keys do
  local stored, level = call('GET', keys[at]), 0
  if stored then
    local us, ns = unpack('<dH', stored)
    level = max((us - now_us) * 1000 + ns, 0)
  end
  local ahead = level + cost
  if ahead <= capacity then
    local ns = ahead % 1000
    local value = pack('<dH', now_us + (ahead - ns) / 1000, ns)
    call('PSETEX', keys[at], format('%d', ahead / 1000000 + 2), value)
  end
  tell(ahead <= capacity and 1 or 0, level)
end
