-- Token bucket; leaky bucket.
--
-- KEYS     the letter B; the instant at which the bucket is full again, in microseconds since
--          the epoch (7 bytes) and nanoseconds beyond (2 bytes); the nanoseconds in which one
--          unit comes back by the numbers that took last (7 bytes). In three cases 7 bytes
--          follow for the instant of the write, in microseconds: numbers with another rate have
--          read it, it is further from full than the capacity, or it is in debt. In the last two
--          cases, 7 more are how much of what is used is no debt, in nanoseconds of that rate.
--          All are little-endian.
-- Unit     nanoseconds of refill. Level: how far that instant is ahead of now.
-- ARGV     capacity: from empty to full; a: the level of an unknown caller;
--          b: how long a full bucket is remembered; 0 if a is 0; c: nanoseconds for each unit
-- Reply    level
-- Expiry   when the bucket is full and has been remembered for b.
-- Atomic   see the engine.
--
-- Clocks tick in microseconds: a bucket that is full before the next tick counts as
-- full, and a level may exceed the capacity by less than a tick. `more` is how far the
-- bucket is from full, even beyond the highest level of these numbers.
--@numbers
c, at = unpack('<d', numbers, at)
slack, drop_ms = 999, capacity / 1000000
--@read
local full_us, ns, unit_ns, written_us, paid_ns, ahead
if stored and byte(stored) == 66 and (#stored == 17 or #stored == 24 or #stored == 31) then
  full_us, ns, unit_ns = unpack('<I7I2I7', stored, 2)
  written_us = #stored > 17 and unpack('<I7', stored, 18)
  paid_ns = #stored > 24 and unpack('<I7', stored, 25)
end
local since_us = written_us or now_us
if is_foreign or stored and not (full_us and full_us <= largest and ns < 1000 and unit_ns > 0
    and unit_ns <= largest and since_us <= largest and (paid_ns or 0) <= largest) then
  level = nil
elseif stored then
  -- After a step back of the clock, no time passes until it catches up.
  local at_us = max(now_us, since_us)
  ahead = min((full_us - at_us) * 1000 + ns, largest)
  if unit_ns ~= c then
    paid_ns = paid_ns and min(math.ceil(paid_ns / unit_ns) * c, largest)
    -- Other numbers wrote it. Since then, the used units are refilled by these.
    local over = min((full_us - since_us) * 1000 + ns, largest)
    if over > 0 then
      ahead = min(math.ceil(over / unit_ns) * c, largest) - (at_us - since_us) * 1000
    end
  end
  unsaved = at_us > now_us and ahead + b > 0
end
is_linear = true
if ahead and ahead > 0 then
  if not paid_ns and ahead > capacity + slack then
    -- In whole units, as other numbers read it.
    paid_ns, unsaved = unit_ns == c and ahead or floor(ahead / c) * c, true
  end
  -- What is no debt and beyond the capacity is not counted. These numbers grant the slack themselves.
  local is_counted = not paid_ns or paid_ns <= capacity + slack
  level, more, kept = is_counted and ahead or max(ahead - (paid_ns - capacity), 0), ahead, stored
  is_linear, unsaved = ahead == level, unsaved or unit_ns ~= c and not written_us
elseif level and a > 0 and not (ahead and ahead + b > 0) then
  level, unsaved = a, true
end
--@write
-- A quota with other numbers may have taken more: that stays taken.
local ahead = max(min(more + change, largest), level + change)
level = level + change
local full_us, ns, unit_ns = now_us + floor(ahead / 1000), ahead % 1000, c
local written_us, paid_ns = now_us, nil
if ahead > level or level > capacity + 999 then
  paid_ns = min(capacity + (ahead - level), largest)
end
local is_noted = paid_ns
if change == 0 and kept then
  -- What takes nothing changes nothing for other numbers.
  full_us, ns, unit_ns = unpack('<I7I2I7', kept, 2)
  is_noted = paid_ns or #kept > 17 or unit_ns ~= c
  written_us = #kept > 17 and unpack('<I7', kept, 18) or written_us
  if #kept > 24 then
    paid_ns = unpack('<I7', kept, 25)
  elseif paid_ns then
    -- No more than is used: units are rounded up.
    paid_ns = unit_ns == c and paid_ns or math.ceil(paid_ns / c) * unit_ns
    paid_ns = min(paid_ns, (full_us - written_us) * 1000 + ns, largest)
  end
  local late_us = max(written_us - now_us, 0)
  full_us, written_us = full_us - late_us, written_us - late_us
  if (full_us - now_us) * 1000 + ns > largest then
    full_us, ns = now_us + floor(largest / 1000), largest % 1000
  end
end
value = pack('<BI7I2I7', 66, full_us, ns, unit_ns)
if is_noted then
  value = value .. pack('<I7', written_us) .. (paid_ns and pack('<I7', paid_ns) or '')
end
ttl_ms = max((ahead + b) / 1000000, (full_us - now_us) / 1000) + spare_ms
