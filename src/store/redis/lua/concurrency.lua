-- Concurrency.
--
-- KEYS     the letter H, then for each holder, as IEEE doubles:
--            its number; when its units expire, in milliseconds since the epoch;
--            the version of its last statement; the last settled group; its units of
--            settled groups, less all that it released since; and the units taken in
--            each of the two groups after the settled one
--          A holder is a process, or more exactly its store handle. It holds the
--          sum of the last three numbers, or nothing if the sum is negative.
-- Unit     units. Level: units held.
-- ARGV     capacity: the limit; a: the lifetime in milliseconds;
--          b to f: the sender's statement: its number (0: it only peeks), the
--          version, the settled group, the units, and the group of a take (1 or 2
--          after the settled one), plus 4 if an older message may still arrive
--          New holders are denied once 10,000 have an entry.
-- Reply    level, mark: when the last permit expires, more: when the cost fits, if
--          it does not fit now, in milliseconds since the epoch. A take whose group
--          is settled gets a level so high that nothing fits.
-- Expiry   when the last holder's units expire. A holder without units is remembered
--          as long, if an older message of it may still arrive.
-- Atomic   see the engine.
--@numbers
c, d, e, f, at = unpack('<dddd', numbers, at)
drop_ms = a
--@read
local latest_ms, last_ms, own_at, is_rewritten = now_ms + a, 0, false, false
local version, settled, held, first, second, ends_ms = 0, 0, 0, 0, 0, 0
if is_foreign or stored and (byte(stored) ~= 72 or #stored % 56 ~= 1 or #stored > 1120001) then
  level = nil
elseif stored then
  for place = 2, #stored, 56 do
    local number, till_ms, newest, last, units, one, two = unpack('<ddddddd', stored, place)
    if not (number >= 1 and number <= largest and number % 1 == 0
        and till_ms >= 0 and till_ms <= largest and till_ms % 1 == 0
        and newest >= 1 and newest <= largest and newest % 1 == 0
        and last >= 0 and last <= largest and last % 1 == 0
        and units >= -largest and units <= largest and units % 1 == 0
        and one >= 0 and one <= largest and one % 1 == 0
        and two >= 0 and two <= largest and two % 1 == 0) then
      level = nil
      break
    end
    if till_ms > latest_ms then
      -- No units live longer than new ones.
      till_ms, unsaved, is_rewritten = latest_ms, true, true
    end
    if till_ms <= now_ms then
      is_rewritten = true
    elseif number == b and not own_at then
      own_at, ends_ms, version, settled = place, till_ms, newest, last
      held, first, second = units, one, two
    else
      last_ms = max(last_ms, till_ms)
      units = units + one + two
      if units > 0 then
        level, mark = level + units, max(mark, till_ms)
      end
    end
  end
end
kept = nil
if level then
  local place = d + f % 4 - settled
  if c > version then
    local before = max(held + first + second, 0)
    if d == settled + 1 then
      first, second = second, 0
    elseif d ~= settled then
      first, second = 0, 0
    end
    settled, held = d, e
    if max(held + first + second, 0) ~= before then
      unsaved, ends_ms = true, latest_ms
    end
    place = f % 4
  end
  local own = held + first + second
  if own > 0 then
    level, mark = level + own, max(mark, ends_ms)
  end
  level = min(level, largest)
  if level > most and task < 2 then
    -- Units of processes that no longer renew them come first, the sender's own last.
    local expiring, over = { { latest_ms, own } }, level - max(most, 0)
    for from = 2, stored and #stored or 0, 56 do
      local _, till_ms, _, _, units, one, two = unpack('<ddddddd', stored, from)
      if till_ms > now_ms and from ~= own_at then
        expiring[#expiring + 1] = { min(till_ms, latest_ms), units + one + two }
      end
    end
    table.sort(expiring, function(one, other)
      return one[1] < other[1]
    end)
    for _, one in ipairs(expiring) do
      over, more = over - max(one[2], 0), one[1]
      if over <= 0 then
        break
      end
    end
    if over > 0 then
      more = 0
    end
  end
  local is_full = stored and #stored > 560000 and not own_at
  if (task == 0 or f % 4 > 0) and (is_full or place ~= 1 and place ~= 2) then
    level = largest
  end
  is_linear = level + cost * (untold - 1) <= most
  kept = { stored, own_at, is_rewritten, last_ms, version, settled, held, first, second, ends_ms, place }
end
--@write
local stored, own_at, is_rewritten, last_ms, version, settled, held, first, second, ends_ms, place = values_of(kept, 1, 11)
if change > 0 and place == 1 then
  first = first + change
elseif change > 0 then
  second = second + change
end
if c >= version and (change > 0 or task == 4) then
  ends_ms = now_ms + a
end
local parts = { 'H' }
if is_rewritten then
  for from = 2, #stored, 56 do
    local number, till_ms = unpack('<dd', stored, from)
    if till_ms > now_ms and from ~= own_at then
      local ends = struct.pack('<dd', number, min(till_ms, now_ms + a))
      parts[#parts + 1] = ends .. sub(stored, from + 16, from + 55)
    end
  end
elseif own_at then
  parts[2], parts[3] = sub(stored, 2, own_at - 1), sub(stored, own_at + 56)
elseif stored then
  parts[2] = sub(stored, 2)
end
if held + first + second > 0 or c < version or f >= 4 then
  last_ms = max(last_ms, ends_ms)
  parts[#parts + 1] = struct.pack('<ddddddd', b, ends_ms, max(c, version), settled, held, first, second)
end
if stored or last_ms > 0 then
  value = table.concat(parts)
  ttl_ms = max(last_ms - now_ms, 0) + spare_ms
end
