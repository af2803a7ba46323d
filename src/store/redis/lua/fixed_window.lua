-- Fixed window (algorithm 2).
--
-- KEYS     the window's end in milliseconds since the epoch, 13 digits, then
--          the units used: up to 999,999 Redis keeps the whole as one integer.
-- Unit     units. Level: those used.
-- ARGV     capacity: the limit; a: the window in milliseconds; b: 1 where
--          windows start at its multiples, else 0
-- Mark     the window's end in milliseconds since the epoch
-- Expiry   when the window ends.

slack[2] = 0

read[2] = function(key, _, window, aligned)
  local now_ms = floor(now_us / 1000)
  -- The end of a window that starts now, and the latest that any may have.
  local latest = now_ms + window
  if aligned == 1 then
    latest = (floor(now_ms / window) + 1) * window
  end
  local stored = pcall_redis('GET', key)
  if stored then
    if type(stored) ~= 'string' or #stored < 14 or #stored > 29 or find(stored, '%D') then
      return nil, window
    end
    local ends = tonumber(sub(stored, 1, 13))
    if ends > now_ms then
      local used = math.min(tonumber(sub(stored, 14)), 9007199254740991)
      if ends > latest then
        return used, latest, true
      end
      return used, ends, false
    end
  end
  return 0, latest, false
end

write[2] = function(key, used, ends)
  call('PSETEX', key, ends - floor(now_us / 1000) + spare_ms, format('%013d%d', ends, used))
end
