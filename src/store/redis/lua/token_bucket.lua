-- Token bucket; leaky bucket.
--
-- KEYS     the instant at which the bucket is full again, in nanoseconds since
--          the epoch: 19 digits, which Redis stores as one integer. If that is
--          further ahead than the capacity, 16 digits follow for the instant at
--          which the bucket counts as just empty, and 16 for the instant of the
--          write, in microseconds since the epoch.
-- Unit     nanoseconds of refill. Level: how far that instant is ahead of now.
-- ARGV     capacity: from empty to full; a: the level of an unknown caller;
--          b: how long a full bucket is remembered; 0 if a is 0
-- Reply    level
-- Expiry   when the bucket is full and has been remembered for b.
-- Atomic   see the engine.
--
-- 19 digits are more than a Lua number holds. So the last four are split off, now is
-- subtracted from the others, and the rest is nanoseconds ahead of now.
-- Clocks tick in microseconds: a bucket that is full before the next tick counts as
-- full, and a level may exceed the capacity by less than a tick.
--@numbers
slack, drop_ms = 999, capacity / 1000000
--@read
local digits = stored and #stored
if is_foreign or stored and (digits < 4 or digits > 51 or (digits > 19 and digits < 36) or not find(stored, '^%d+$')) then
  level = nil
else
  local ahead, at_us, highest = nil, now_us, capacity
  -- Whether the level is all that is stored, so that a change can be added to it.
  c = false
  if stored then
    if digits > 19 then
      -- After a step back of the clock, no time passes until it catches up.
      at_us = max(now_us, tonumber(sub(stored, -16)))
      unsaved = at_us > now_us
      highest = max(capacity + (sub(stored, -32, -17) - at_us) * 1000, 0)
      stored = sub(stored, 1, -33)
    end
    -- The last four digits, and those before them.
    local w, x, y, z = byte(stored, -4, -1)
    local low = ((w * 10 + x) * 10 + y) * 10 + z - 53328
    local high = floor((stored - low) / 10000 + 0.5)
    ahead = (high * 10 - at_us) * 1000 + low
    if ahead > largest then
      ahead = largest
    end
    if ahead > highest + slack then
      unsaved = unsaved or digits <= 19
    else
      highest = ahead
    end
    if task == 3 and extra > 0 and extra ~= high * 10 + floor(low / 1000) then
      cost = 0
    end
  end
  -- If more than the level is taken, each write rounds the level up.
  is_linear = true
  if ahead and ahead > 0 then
    level, kept, is_linear = highest, ahead, ahead == highest
    c = is_linear and digits == 19
  elseif a > 0 and not (ahead and ahead + b > 0) then
    level, unsaved = a, true
  end
end
--@write
level = level + change
-- A quota with other numbers may have taken more: that stays taken.
local ahead = level
if kept and kept + change > level then
  ahead = max(min(kept + change, largest), level)
end
ttl_ms = (ahead + b) / 1000000 + spare_ms
local is_deep = ahead > level or level > capacity + 999
local is_added = false
if c and not is_open and not is_deep then
  if change ~= added then
    added, added_text = change, format('%d', change)
  end
  -- In this order: after a PEXPIRE, Redis would let the rest of the script write even
  -- if its memory is full. If either is refused, the value is written anew.
  is_added = type(call('INCRBY', keys[leg_key], added_text)) == 'number'
  if is_added and call(expire, keys[leg_key], format('%d', expires_from_ms + ttl_ms)) ~= 1 then
    is_added = false
    call('INCRBY', keys[leg_key], format('%d', -change))
  end
end
if not is_added then
  local ns = ahead % 1000
  value = format('%d%03d', now_us + (ahead - ns) / 1000, ns)
  if is_deep then
    local debt_us = math.ceil(max(level - capacity, 0) / 1000)
    local left_us = floor(max(capacity - level, 0) / 1000)
    value = format('%s%016d%016d', value, now_us + debt_us - left_us, now_us)
  end
end
