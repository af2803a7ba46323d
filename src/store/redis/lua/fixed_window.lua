-- Fixed window; token bucket that refills at once.
--
-- KEYS     the window's end in milliseconds since the epoch, 13 digits, then
--          the units used: up to 999,999 Redis stores both as one integer.
--          In two cases the units have 16 digits, and more follow: a token bucket has more
--          used than its capacity, or a version with shorter windows has read it. 16 are
--          one more than the used units that are no debt (0 if none are), and 13 when it was
--          read (0 for never).
-- Unit     units. Level: units used.
-- ARGV     capacity: the limit; a: the window in milliseconds;
--          b: the start of the window: 0 with the first use, 1 at multiples of its
--          length, 2 with the month, 3 as 0, in a token bucket; c: by how many
--          milliseconds later, below 0 for earlier; d: how many units each end of the window refills, or
--          0 for all; e: the units that an unknown caller has used; f: for how many
--          milliseconds a caller without used units is remembered; 0 if e is 0
-- Reply    level, mark: the window's end in milliseconds since the epoch
-- Expiry   when no units are used any more and the caller has been remembered for f.
-- Atomic   see the engine.
--@numbers
c, d, e, f, at = unpack('<dddd', numbers, at)
drop_ms = a
--@read
if is_foreign or stored and (find(stored, '%D') or #stored < 14 or #stored > 29 and #stored ~= 58) then
  level = nil
else
  local read_ms = stored and #stored == 58 and tonumber(sub(stored, 46)) or 0
  local is_known = read_ms > 0 and read_ms <= now_ms
  -- The end of a window that starts now, and of one that started when this was first read: no
  -- window may end later.
  local from_ms, latest_ms, last_ms = is_known and read_ms or now_ms, nil, nil
  repeat
    local is_now = from_ms == now_ms
    latest_ms = min(from_ms + a, 9999999999999)
    if b == 1 then
      latest_ms = floor((from_ms + a - c) / a) * a + c
    elseif b == 2 then
      -- As in "chrono-Compatible Low-Level Date Algorithms" by Howard Hinnant:
      -- years start in March, so that the leap day is the last.
      local day = floor(max(from_ms - c, 0) / 86400000) + 719468
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
    last_ms, from_ms = last_ms or latest_ms, now_ms
  until is_now
  level, mark, is_linear = 0, latest_ms, true
  local ends_ms, used, uncounted = stored and tonumber(sub(stored, 1, 13)), 0, 0
  if ends_ms then
    local counted, is_news = 0, ends_ms > last_ms and not is_known
    used = min(tonumber(sub(stored, 14, 29)), 9007199254740991)
    if #stored == 58 then
      counted = min(tonumber(sub(stored, 30, 45)), 9007199254740991)
    end
    kept = counted > 0 and counted - 1 or used
    ends_ms = min(ends_ms, last_ms)
    if b == 3 then
      -- A debt is paid in full. But new numbers must not lock a caller out for long.
      uncounted = max(kept - 2 * capacity, 0)
      local highest = d > 0 and d * floor(largest / a) or largest
      level = min(max(used - uncounted, 0), max(min(highest, largest - 1000), 2 * capacity))
    else
      level = used
    end
    if is_news then
      -- What takes nothing changes nothing for longer windows.
      kept = { sub(stored, 1, 13), used, uncounted > 0 and kept + 1 or counted, kept }
    end
    unsaved = is_news
  end
  if ends_ms and ends_ms > now_ms then
    mark, more = ends_ms, level + uncounted
    if b == 3 and level == 0 then
      -- The next window of a full bucket starts when the next token is taken.
      mark = latest_ms
    end
  else
    local windows, ended, refilled = 1, 0, 0
    if ends_ms then
      ended = floor((now_ms - ends_ms) / a) + 1
      refilled = ended * d
      if d > 0 then
        windows = math.ceil(level / d)
      end
    end
    if ended > 0 and ended < windows then
      level, mark = level - refilled, ends_ms + ended * a
      more = level + uncounted
    else
      -- What does not count here may count by the numbers of others. Without refill, it comes back a
      -- window later.
      more = d == 0 and ended > 1 and 0 or max(level + uncounted - max(refilled, level), 0)
      level = 0
      if e > 0 and not (ends_ms and now_ms < ends_ms + max(windows - 1, 0) * a + f) then
        level, unsaved = e, true
      end
    end
  end
  if task == 3 and extra > 0 and extra ~= mark then
    cost = 0
  end
end
--@write
-- Under other numbers more may be used: that stays used.
local all, ends_ms = max(more, level) + change, mark
local counted
if b == 3 and more > level then
  counted = 2 * capacity + more - level
elseif b == 3 and level + change > capacity then
  -- A refill pays debts first.
  counted = type(kept) == 'table' and kept[4] or kept or 0
  counted = min(max(min(counted, level), capacity), level + change)
end
local no_debt = counted or all
if change == 0 and type(kept) == 'table' then
  value = format('%s%016d%016d%013d', kept[1], kept[2], kept[3], now_ms)
  ends_ms, all, no_debt = tonumber(kept[1]), kept[2], kept[4]
elseif counted then
  value = format('%013d%016d%016d%013d', mark, all, counted + 1, 0)
else
  value = format('%013d%d', mark, all)
end
level = level + change
ttl_ms = ends_ms - now_ms + f + spare_ms
if d > 0 then
  ttl_ms = min(ttl_ms + max(math.ceil(all / d) - 1, 0) * a, 9007199254740991)
elseif b == 3 and no_debt > 2 * capacity then
  ttl_ms = min(ttl_ms + a, 9007199254740991)
end
