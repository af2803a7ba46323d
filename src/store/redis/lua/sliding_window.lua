-- Sliding window.
--
-- KEYS     digits: the lengths of the next two numbers, plus 10, in two digits
--          each; the units of the current window of the clock; those of the
--          previous window; and the end of the current window since the epoch, in
--          seconds (10 digits) or milliseconds (13). Redis stores up to 19 digits
--          as one integer. If a version with shorter windows has read it, 26 digits are
--          that end and when it was read, both in milliseconds.
-- Unit     units. Level: the units of the current window, plus the share of the
--          previous window that is within one window's length of now, rounded up.
-- ARGV     capacity: the limit; a: the window in milliseconds
-- Reply    level, mark: the end of the current window, more: the units of the
--          previous window
-- Expiry   when neither window counts any more.
-- Atomic   see the engine.
--
-- c is the number of units of the current window.
--@numbers
drop_ms = 2 * a
--@read
local ends_ms, read_ms, current, previous, second = false, 0, 0, 0, 0
if stored and not find(stored, '%D') and #stored >= 16 and #stored <= 62 then
  local first = sub(stored, 1, 2) - 6
  second = first + sub(stored, 3, 4) - 10
  current = tonumber(sub(stored, 5, first))
  previous = tonumber(sub(stored, first + 1, second))
  local digits = #stored - second
  if current and previous and (digits == 10 or digits == 13 or digits == 26) then
    ends_ms = tonumber(sub(stored, second + 1, second + 13))
  end
  if digits == 10 and ends_ms then
    ends_ms = ends_ms * 1000
  elseif digits == 26 and ends_ms then
    read_ms = tonumber(sub(stored, -13))
  end
end
if is_foreign or stored and not ends_ms then
  level = nil
else
  mark = (floor(now_ms / a) + 1) * a
  if ends_ms then
    if read_ms > 0 and read_ms <= now_ms then
      ends_ms = min(ends_ms, (floor(read_ms / a) + 1) * a)
    elseif ends_ms > mark then
      -- What takes nothing changes nothing for longer windows.
      kept, unsaved = sub(stored, 1, second) .. format('%013d', ends_ms), true
      ends_ms = mark
    end
    -- Keeps the product below exact if the limit was once higher.
    local highest = floor(9007199254740991 / (2 * a))
    current, previous = min(current, highest), min(previous, highest)
    if ends_ms + 2 * a <= mark then
      current, previous = 0, 0
    elseif ends_ms + a <= mark then
      current, previous = 0, current
    end
  end
  c, more, is_linear = current, previous, true
  level = current + math.ceil(previous * (mark - now_ms) / a)
  if task == 3 then
    cost = min(cost, current)
    if extra > 0 and extra ~= mark then
      cost = 0
    end
  end
end
--@write
local current, ends_ms = c + change, mark
if change == 0 and kept then
  value, ends_ms = kept .. format('%013d', now_ms), tonumber(sub(kept, -13))
else
  local ends = format('%013d', mark)
  if mark % 1000 == 0 then
    ends = sub(ends, 1, 10)
  end
  local one, two = format('%d', current), format('%d', more)
  value = format('%d%d%s%s%s', #one + 10, #two + 10, one, two, ends)
end
ttl_ms = ends_ms - now_ms + spare_ms
if current > 0 then
  ttl_ms = ttl_ms + a
end
