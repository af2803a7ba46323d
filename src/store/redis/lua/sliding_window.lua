-- Sliding window.
--
-- KEYS     the end of the window of the clock in milliseconds since the epoch,
--          13 digits, the units it has counted, and those of the one before,
--          with colons between.
-- Unit     units. Level: those counted, of the window before the part that lies
--          within one window's length of now, rounded up.
-- ARGV     capacity: the limit; a: the window in milliseconds
-- Reply    level, mark: the window's end, more: what the one before counted
-- Expiry   when neither counts any more.
-- Atomic   see the engine.
--@read
drop_ms = 2 * a
local ends_ms, current, previous = false, 0, 0
if stored then
  ends_ms, current, previous = string.match(stored, '^(%d%d%d%d%d%d%d%d%d%d%d%d%d):(%d+):(%d+)$')
end
if is_foreign or stored and (not ends_ms or #stored > 47) then
  level = nil
else
  mark = (floor(now_ms / a) + 1) * a
  if ends_ms then
    -- So that the product below is exact where the limit was higher once.
    local highest = floor(9007199254740991 / (2 * a))
    ends_ms = tonumber(ends_ms)
    current, previous = math.min(tonumber(current), highest), math.min(tonumber(previous), highest)
    if ends_ms + a > mark then
      unsaved = ends_ms > mark
    elseif ends_ms + 2 * a > mark then
      current, previous = 0, current
    else
      current, previous = 0, 0
    end
  end
  more, kept = previous, current
  level = current + math.ceil(previous * (mark - now_ms) / a)
  if task == 3 then
    cost = math.min(cost, current)
    if extra > 0 and extra ~= mark then
      cost = 0
    end
  end
end
--@write
local current = kept + change
value = format('%013d:%d:%d', mark, current, more)
ttl_ms = mark - now_ms + spare_ms
if current > 0 then
  ttl_ms = ttl_ms + a
end
