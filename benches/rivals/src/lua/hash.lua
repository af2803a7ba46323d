-- Tokens and the instant at which they were counted, as fields of a hash.
for at = 1, #keys do
  local stored, level = call('HMGET', keys[at], 'level', 'at'), 0
  if stored[1] then
    level = max(stored[1] - (now_us - stored[2]) * 1000, 0)
  end
  local ahead = level + cost
  if ahead <= capacity then
    call('HSET', keys[at], 'level', format('%d', ahead), 'at', format('%d', now_us))
    call('PEXPIRE', keys[at], format('%d', ahead / 1000000 + 2))
  end
  tell(ahead <= capacity and 1 or 0, level)
end
