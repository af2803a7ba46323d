-- Token bucket (algorithm 1).
--
-- KEYS     the instant at which the bucket is full again, in nanoseconds since
--          the epoch: 19 digits, which Redis keeps as one integer.
-- Unit     nanoseconds of refill. Level: how far that instant is ahead of now.
-- ARGV     capacity: from empty to full; a: the level of an unknown caller; b: 0
-- Mark     0
-- Expiry   when full; where unknown callers do not start full, one more
--          capacity later.
--
-- Clocks tick in microseconds: a bucket that is full before the next tick
-- counts as full, and a level may be ahead of the capacity by less than a tick.
--
-- 19 digits are more than a Lua number holds. The microseconds are split off,
-- now is subtracted from them, and what is left is nanoseconds ahead of now.

slack[1] = 999

read[1] = function(key, capacity, initial)
  local stored = pcall_redis('GET', key)
  if stored then
    if type(stored) ~= 'string' or #stored < 4 or #stored > 19 or find(stored, '%D') then
      return nil, floor(capacity / 1000000) + 1
    end
    local ahead = (sub(stored, 1, -4) - now_us) * 1000 + sub(stored, -3)
    if ahead > capacity + slack[1] then
      return capacity, 0, true
    elseif ahead > 0 then
      return ahead, 0, false
    elseif initial > 0 and ahead + capacity > 0 then
      return 0, 0, false
    end
  end
  return initial, 0, initial > 0
end

write[1] = function(key, level, _, capacity, initial)
  local ns = level % 1000
  local known_ns = level
  if initial > 0 then
    known_ns = level + capacity
  end
  call('PSETEX', key, floor(known_ns / 1000000) + spare_ms,
    format('%d%03d', now_us + (level - ns) / 1000, ns))
end
