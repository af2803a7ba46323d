-- Sliding log.
--
-- KEYS     the letter L, then for each unit the instant at which it was taken,
--          in microseconds since the epoch, as an IEEE double, oldest first.
-- Unit     units. Level: those taken within the window.
-- ARGV     capacity: the limit; a: the window in microseconds
-- Reply    level, mark: the newest instant, more: when the cost fits, where it
--          does not fit now, or what is left as the newest when others are given
--          back, in microseconds since the epoch
-- Expiry   when the newest has left the window.
-- Atomic   see the engine.
--@numbers
drop_ms = floor(a / 1000)
--@read
kept = ''
if is_foreign or stored and (sub(stored, 1, 1) ~= 'L' or #stored % 8 ~= 1) then
  level = nil
elseif stored and #stored > 1 then
  -- The first that still counts, by bisection.
  local first, after = 0, (#stored - 1) / 8
  while first < after do
    local middle = floor((first + after) / 2)
    if unpack('<d', stored, 8 * middle + 2) + a <= now_us then
      first = middle + 1
    else
      after = middle
    end
  end
  kept = sub(stored, 8 * first + 2)
  level = #kept / 8
  mark = level > 0 and unpack('<d', kept, #kept - 7) or 0
  if not (mark >= 0 and mark <= largest and mark % 1 == 0) then
    level = nil
  elseif mark > now_us then
    -- Written by a clock that went backwards: from now on they count from now.
    unsaved = true
    local past = level
    while past > 0 and unpack('<d', kept, 8 * past - 7) > now_us do
      past = past - 1
    end
    kept = sub(kept, 1, 8 * past) .. string.rep(struct.pack('<d', now_us), level - past)
    mark = now_us
  end
  if level and task == 3 and extra > 0 then
    -- Only what was taken at that instant; it is moved to the end, to be cut off there.
    local last = level
    while last > 0 and unpack('<d', kept, 8 * last - 7) > extra do
      last = last - 1
    end
    local equal = last
    while equal > 0 and unpack('<d', kept, 8 * equal - 7) == extra do
      equal = equal - 1
    end
    cost = min(cost, last - equal)
    kept = sub(kept, 1, 8 * (last - cost)) .. sub(kept, 8 * last + 1) .. string.rep(struct.pack('<d', extra), cost)
  end
  if level and task == 3 then
    cost = min(cost, level)
    if cost < level then
      more = unpack('<d', kept, 8 * (level - cost) - 7)
    end
  end
  local over = level and task < 3 and level - max(most, 0) or 0
  if over > 0 then
    more = unpack('<d', kept, 8 * over - 7) + a
  end
end
--@write
if change > 0 then
  kept = kept .. string.rep(struct.pack('<d', now_us), change)
elseif change < 0 then
  kept = sub(kept, 1, 8 * change - 1)
end
value = 'L' .. kept
ttl_ms = spare_ms
if kept ~= '' then
  ttl_ms = max(floor((unpack('<d', kept, #kept - 7) + a - now_us) / 1000), 0) + spare_ms
end
