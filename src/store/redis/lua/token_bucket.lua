-- Token bucket.
--
-- KEYS     the instant at which the bucket is full again, in nanoseconds since
--          the epoch: 19 digits, which Redis keeps as one integer.
-- Unit     nanoseconds of refill. Level: how far that instant is ahead of now.
-- ARGV     capacity: from empty to full; a: the level of an unknown caller;
--          b: how long a full bucket is remembered, 0 where a is
-- Mark     0
-- Expiry   when full, and remembered for long enough.
-- Atomic   see the engine.
--
-- 19 digits are more than a Lua number holds. The microseconds are split off,
-- now is subtracted from them, and what is left is nanoseconds ahead of now.
-- Clocks tick in microseconds: a bucket that is full before the next tick
-- counts as full, and a level may be ahead of the capacity by less than a tick.
--@read
slack = 999
if is_foreign or stored and (#stored < 4 or #stored > 19) then
  level, mark = nil, math.floor(capacity / 1000000) + 1
else
  local ahead
  if stored then
    ahead = (string.sub(stored, 1, -4) - now_us) * 1000 + string.sub(stored, -3)
  end
  if ahead and ahead > 0 then
    level = ahead
    if ahead > capacity + slack then
      level, unsaved = capacity, true
    end
  elseif a > 0 and not (ahead and ahead + b > 0) then
    level, unsaved = a, true
  end
end
--@write
local ns = level % 1000
value = format('%d%03d', now_us + (level - ns) / 1000, ns)
ttl_ms = (level + b) / 1000000 + spare_ms
