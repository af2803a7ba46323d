-- Token bucket; leaky bucket.
--
-- KEYS     the letter B; the instant at which the bucket is full again, in microseconds since
--          the epoch (7 bytes) and nanoseconds beyond (2 bytes); the nanoseconds in which one
--          unit comes back by the numbers that took last (7 bytes). In three cases 14 bytes
--          follow: numbers with another rate have read it, it is further from full than the
--          capacity, or it is in debt. 7 bytes are the instant of the write, in microseconds,
--          and 7 are how much of what is used is no debt, in nanoseconds of that rate, or 0 if
--          nothing is owed and no smaller version has read it.
--          All are little-endian.
-- Unit     nanoseconds of refill. Level: how far that instant is ahead of now.
-- ARGV     capacity: from empty to full; a: the level of an unknown caller;
--          b: how long a full bucket is remembered; 0 if a is 0; c: nanoseconds for each unit
-- Reply    level
-- Expiry   when the bucket is full and has been remembered for b.
-- Atomic   see the engine.
--
-- Clocks tick in microseconds: a bucket that is full before the next tick counts as
-- full, and a level may exceed the capacity by less than a tick. `more` is how far the bucket is from full, even
-- beyond the highest level of these numbers.
--@numbers
c, at = unpack('<d', numbers, at)
slack, drop_ms = 999, capacity / 1000000
--@read
local full_us, ns, unit_ns, written_us, counted, ahead
if stored and byte(stored) == 66 and (#stored == 17 or #stored == 31) then
  full_us, ns, unit_ns = unpack('<I7I2I7', stored, 2)
  if #stored == 31 then
    written_us, counted = unpack('<I7I7', stored, 18)
  end
end
local since_us, paid_ns = written_us or now_us, counted or 0
if is_foreign or stored and not (full_us and full_us <= largest and ns < 1000 and unit_ns > 0
    and unit_ns <= largest and since_us <= largest and paid_ns <= largest) then
  level = nil
elseif stored then
  -- After a step back of the clock, no time passes until it catches up.
  local at_us = max(now_us, since_us)
  ahead = min((full_us - at_us) * 1000 + ns, largest)
  if unit_ns ~= c then
    paid_ns = min(math.ceil(paid_ns / unit_ns) * c, largest)
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
  if (counted or 0) == 0 and ahead > capacity + slack then
    -- In whole units, as other numbers read it.
    paid_ns, unsaved = unit_ns == c and ahead or max(floor(ahead / c), 1) * c, true
  end
  level, more, kept = max(ahead - max(paid_ns - capacity, 0), 0), ahead, stored
  is_linear, unsaved = ahead == level, unsaved or unit_ns ~= c and not written_us
elseif level and a > 0 and not (ahead and ahead + b > 0) then
  level, unsaved = a, true
end
--@write
-- A quota with other numbers may have taken more: that stays taken.
local ahead = max(min(more + change, largest), level + change)
level = level + change
local full_us, ns, unit_ns = now_us + floor(ahead / 1000), ahead % 1000, c
local written_us, paid_ns = now_us, 0
local is_deep = ahead > level or level > capacity + slack
if is_deep then
  paid_ns = max(min(capacity + (ahead - level), largest), 1)
end
if change == 0 and kept then
  -- What takes nothing changes nothing for other numbers.
  local counted
  full_us, ns, unit_ns = unpack('<I7I2I7', kept, 2)
  if unit_ns ~= c and is_deep then
    paid_ns = min(math.ceil(paid_ns / c) * unit_ns, largest)
  end
  if #kept == 31 then
    written_us, counted = unpack('<I7I7', kept, 18)
    paid_ns = counted > 0 and counted or paid_ns
  end
  is_deep = is_deep or counted or unit_ns ~= c
  local late_us = max(written_us - now_us, 0)
  full_us, written_us = full_us - late_us, written_us - late_us
  if (full_us - now_us) * 1000 + ns > largest then
    full_us, ns = now_us + floor(largest / 1000), largest % 1000
  end
end
value = pack('<BI7I2I7', 66, full_us, ns, unit_ns)
if is_deep then
  value = value .. pack('<I7I7', written_us, paid_ns)
end
ttl_ms = max((ahead + b) / 1000000, (full_us - now_us) / 1000) + spare_ms
