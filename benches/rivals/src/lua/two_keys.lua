-- The same in two keys, as Spring Cloud Gateway keeps it: two GET, two SETEX.
for at = 1, #keys do
  local counted = keys[at] .. 'at'
  local level, at_us = call('GET', keys[at]), call('GET', counted)
  if level and at_us then
    level = max(level - (now_us - at_us) * 1000, 0)
  else
    level = 0
  end
  local ahead = level + cost
  if ahead <= capacity then
    local ttl_s = format('%d', ahead / 1000000000 + 2)
    call('SETEX', keys[at], ttl_s, format('%d', ahead))
    call('SETEX', counted, ttl_s, format('%d', now_us))
  end
  tell(ahead <= capacity and 1 or 0, level)
end
