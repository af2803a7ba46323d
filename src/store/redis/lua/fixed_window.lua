-- Fixed window; token bucket that refills at once.
--
-- KEYS     the window's end in milliseconds since the epoch, 13 digits, then
--          the units used: up to 999,999 Redis stores both as one integer.
--          If a token bucket has more units used than its capacity, they have 16
--          digits, and 16 more are those that were taken: the others are owed.
-- Unit     units. Level: units used.
-- ARGV     capacity: the limit; a: the window in milliseconds;
--          b: the start of the window: 0 with the first use, 1 at multiples of its
--          length, 2 with the month, 3 as 0, in a token bucket; c: by how many
--          milliseconds later; d: how many units each end of the window refills, or
--          0 for all; e: the units that an unknown caller has used; f: for how many
--          milliseconds a caller without used units is remembered; 0 if e is 0
-- Reply    level, mark: the window's end in milliseconds since the epoch
-- Expiry   when no units are used any more and the caller has been remembered for f.
-- Atomic   see the engine.
--@numbers
c, d, e, f, at = unpack('<dddd', numbers, at)
drop_ms = a
--@read
if is_foreign or stored and (find(stored, '%D') or #stored < 14 or #stored > 29 and #stored ~= 45) then
  level = nil
else
  -- The end of a window that starts now: no window may end later.
  local latest_ms = min(now_ms + a, 9999999999999)
  if b == 1 then
    latest_ms = floor((now_ms + a - c) / a) * a + c
  elseif b == 2 then
    -- As in "chrono-Compatible Low-Level Date Algorithms" by Howard Hinnant:
    -- years start in March, so that the leap day is the last.
    local day = floor(max(now_ms - c, 0) / 86400000) + 719468
    local era, of_era = floor(day / 146097), day % 146097
    local year = floor((of_era - floor(of_era / 1460) + floor(of_era / 36524) - floor(of_era / 146096)) / 365)
    local of_year = of_era - (365 * year + floor(year / 4) - floor(year / 100))
    local month = floor((5 * of_year + 2) / 153) + 1
    if month == 12 then
      year = year + 1
      day = 365 * year + floor(year / 4) - floor(year / 100) + floor(year / 400)
    else
      day = 365 * year + floor(year / 4) - floor(year / 100) + floor((153 * month + 2) / 5)
    end
    latest_ms = (era * 146097 + day - 719468) * 86400000 + c
  end
  level, mark, is_linear = 0, latest_ms, true
  local ends_ms, used = stored and tonumber(sub(stored, 1, 13)), 0
  if ends_ms then
    used = min(tonumber(sub(stored, 14, 29)), 9007199254740991)
    if b == 3 then
      -- A debt is paid in full. But new numbers must not lock a caller out for long.
      local owed = #stored == 45 and max(used - sub(stored, 30), 0) or 0
      local highest = d > 0 and d * floor(largest / a) or largest
      kept = min(used - owed, 2 * capacity)
      used = min(kept + owed, max(min(highest, largest - 1000), 2 * capacity))
    end
  end
  if ends_ms and ends_ms > now_ms then
    level, mark, unsaved = used, min(ends_ms, latest_ms), ends_ms > latest_ms
    if b == 3 and used == 0 then
      -- The next window of a full bucket starts when the next token is taken.
      mark = latest_ms
    end
  else
    local windows, ended = 1, 0
    if ends_ms then
      ended = floor((now_ms - ends_ms) / a) + 1
      if d > 0 then
        windows = math.ceil(used / d)
      end
    end
    if ended > 0 and ended < windows then
      level, mark = used - ended * d, ends_ms + ended * a
    elseif e > 0 and not (ends_ms and now_ms < ends_ms + max(windows - 1, 0) * a + f) then
      level, unsaved = e, true
    end
  end
  if task == 3 and extra > 0 and extra ~= mark then
    cost = 0
  end
end
--@write
-- What was taken under a larger capacity does not become a debt. A refill pays debts first.
local taken = max(min(kept or 0, level), capacity)
level = level + change
value = format('%013d%d', mark, level)
if b == 3 and level > capacity then
  value = format('%013d%016d%016d', mark, level, min(taken, level))
end
ttl_ms = mark - now_ms + f + spare_ms
if d > 0 then
  ttl_ms = min(ttl_ms + max(math.ceil(level / d) - 1, 0) * a, 9007199254740991)
end
