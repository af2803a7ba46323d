-- Sliding log.
--
-- KEYS     the letter L; the number of units ever counted (5 bytes); then for each
--          entry, oldest first, the instant at which units were taken, in
--          microseconds since the epoch (7 bytes), and the number of units counted
--          before it (5 bytes). All are little-endian. Counts wrap at 2^40: the units
--          between two counts are their difference.
-- Unit     units. Level: units taken within the window.
-- ARGV     capacity: the limit; a: the window in microseconds
-- Reply    level, mark: the newest entry's instant, more: if the cost does not fit
--          now, the instant of the entry that must leave first; for a refund, the
--          instant of the newest entry that stays
-- Expiry   when the newest entry has left the window.
-- Atomic   see the engine.
--
-- c is the number of units ever counted, d the bytes of `kept` before the first entry
-- that still counts, e the number of those entries.
--@numbers
drop_ms = a / 1000
--@read
kept, c, d, e = 'L\0\0\0\0\0', 0, 6, 0
if is_foreign or stored and (sub(stored, 1, 1) ~= 'L' or #stored % 12 ~= 6) then
  level = nil
elseif stored then
  kept, c = stored, unpack('<I5', stored, 2)
  -- Finds the first entry that still counts, by bisection. No sum here is above 2^53.
  local first, after = 0, (#stored - 6) / 12
  while first < after do
    local middle = floor((first + after) / 2)
    if unpack('<I7', stored, 12 * middle + 7) <= now_us - a then
      first = middle + 1
    else
      after = middle
    end
  end
  d = 12 * first + 6
  e = (#stored - d) / 12
end
if e > 0 then
  local round, base = 1099511627776, unpack('<I5', kept, d + 8)
  level, mark = (c - base) % round, unpack('<I7', kept, #kept - 11)
  if mark > now_us and mark <= largest then
    -- The clock has stepped back: entries of the future become one entry of now.
    local ahead = d + 12 * e - 12
    while ahead > d and unpack('<I7', kept, ahead - 11) > now_us do
      ahead = ahead - 12
    end
    if ahead > d and unpack('<I7', kept, ahead - 11) == now_us then
      kept = sub(kept, 1, ahead)
    else
      kept = sub(kept, 1, ahead) .. struct.pack('<I7', now_us) .. sub(kept, ahead + 8, ahead + 12)
    end
    mark, unsaved, e = now_us, true, (#kept - d) / 12
  end
  if task == 3 and extra > 0 then
    -- Only what was taken at that instant. Later entries count fewer units before them.
    local last = d + 12 * e
    while last > d and unpack('<I7', kept, last - 11) > extra do
      last = last - 12
    end
    local held = 0
    if last > d and unpack('<I7', kept, last - 11) == extra then
      held = ((last < #kept and unpack('<I5', kept, last + 8) or c) - unpack('<I5', kept, last - 4)) % round
    end
    cost = min(cost, held)
    if cost > 0 and last < #kept then
      local parts = { sub(kept, 1, cost < held and last or last - 12) }
      for later = last + 1, #kept, 12 do
        local at_us, before = unpack('<I7I5', kept, later)
        parts[#parts + 1] = struct.pack('<I7I5', at_us, (before - cost) % round)
      end
      kept = table.concat(parts)
      e = (#kept - d) / 12
    end
  end
  -- Returns the instant of the unit with this number, counted from the oldest.
  local number = 0
  if task == 3 then
    cost = min(cost, level)
    number = level - cost
  elseif task < 3 then
    number = level - max(most, 0)
  end
  if number > 0 then
    local first, last = 0, e - 1
    while first < last do
      local middle = floor((first + last) / 2)
      if (unpack('<I5', kept, d + 12 * middle + 20) - base) % round >= number then
        last = middle
      else
        first = middle + 1
      end
    end
    more = unpack('<I7', kept, d + 12 * first + 1)
  end
end
--@write
local round, last, more_entries, newest_us = 1099511627776, #kept, '', mark
if change > 0 then
  newest_us = now_us
  if e > 0 and (mark == now_us or e >= max(capacity, 1)) then
    -- One entry for each instant, and a bound that only a debit exceeds.
    last = last - 12
    more_entries = struct.pack('<I7', now_us) .. sub(kept, -5)
  else
    more_entries = struct.pack('<I7I5', now_us, c)
  end
elseif change < 0 then
  local base = unpack('<I5', kept, d + 8)
  while last > d and (unpack('<I5', kept, last - 4) - base) % round >= level + change do
    last = last - 12
  end
  newest_us = last > d and unpack('<I7', kept, last - 11) or now_us - a
end
-- In one expression: each copy of a long string takes time.
value = 'L' .. struct.pack('<I5', (c + change) % round) .. sub(kept, d + 1, last) .. more_entries
ttl_ms = max(floor((newest_us - now_us + a) / 1000), 0) + spare_ms
