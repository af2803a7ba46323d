-- Sliding window.
--
-- KEYS     digits: the lengths of the next two numbers, plus 10, in two digits
--          each; the units of the current window of the clock; those of the
--          previous window; and the end of the current window since the epoch, in
--          seconds (10 digits) or milliseconds (13). Redis stores up to 19 digits
--          as one integer.
-- Unit     units. Level: the units of the current window, plus the share of the
--          previous window that is within one window's length of now, rounded up.
-- ARGV     capacity: the limit; a: the window in milliseconds
-- Reply    level, mark: the end of the current window, more: the units of the
--          previous window
-- Expiry   when neither window counts any more.
-- Atomic   see the engine.
--@numbers
drop_ms = 2 * a
--@read
local ends_ms, current, previous = false, 0, 0
if stored and not find(stored, '%D') and #stored >= 16 and #stored <= 49 then
  local first = sub(stored, 1, 2) - 6
  local second = first + sub(stored, 3, 4) - 10
  current = tonumber(sub(stored, 5, first))
  previous = tonumber(sub(stored, first + 1, second))
  ends_ms = tonumber(sub(stored, second + 1))
  local digits = #stored - second
  if not current or not previous or (digits ~= 10 and digits ~= 13) then
    ends_ms = false
  elseif digits == 10 then
    ends_ms = ends_ms * 1000
  end
end
if is_foreign or stored and not ends_ms then
  level = nil
else
  mark = (floor(now_ms / a) + 1) * a
  if ends_ms then
    -- Keeps the product below exact if the limit was once higher.
    local highest = floor(9007199254740991 / (2 * a))
    current, previous = min(current, highest), min(previous, highest)
    if ends_ms + a > mark then
      unsaved = ends_ms > mark
    elseif ends_ms + 2 * a > mark then
      current, previous = 0, current
    else
      current, previous = 0, 0
    end
  end
  more, kept, is_linear = previous, current, true
  level = current + math.ceil(previous * (mark - now_ms) / a)
  if task == 3 then
    cost = min(cost, current)
    if extra > 0 and extra ~= mark then
      cost = 0
    end
  end
end
--@write
local current = kept + change
local ends = format('%013d', mark)
if mark % 1000 == 0 then
  ends = sub(ends, 1, 10)
end
local one, two = format('%d', current), format('%d', more)
value = format('%d%d%s%s%s', #one + 10, #two + 10, one, two, ends)
ttl_ms = mark - now_ms + spare_ms
if current > 0 then
  ttl_ms = ttl_ms + a
end
