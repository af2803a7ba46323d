-- Hold: units of the bucket whose key comes next, which are taken and not charged yet.
--
-- KEYS     the start of the younger generation in milliseconds since the epoch, 13
--          digits; the units held in it; and if any are held in the elder generation,
--          which started a lifetime earlier, a colon and those.
-- Unit     a unit of the bucket. Level: units held.
-- ARGV     capacity: none; a: the lifetime in milliseconds; b: for how long what has
--          lapsed is remembered; c: the level of one unit in the bucket
-- Reply    level, mark: the start of the generation in which units are held now, more:
--          for tasks 3, 4 and 6 how many of the units are still held
-- Expiry   when what is held has lapsed and has been remembered for b.
-- Atomic   see the engine.
--
-- A generation lapses two lifetimes after its start. A check that may write charges to
-- the bucket what has lapsed.
--@numbers
c, at = unpack('<d', numbers, at)
drop_ms = 3 * a + b
--@read
local start_ms, younger, elder, gone = now_ms, 0, 0, 0
if is_foreign or stored and (#stored > 46 or not (find(stored, '^%d+$') or find(stored, '^%d+:%d+$')) or #stored < 14) then
  level = nil
elseif stored then
  local colon = find(stored, ':', 1, true)
  start_ms, younger = tonumber(sub(stored, 1, 13)), tonumber(sub(stored, 14, (colon or 0) - 1))
  elder = colon and tonumber(sub(stored, colon + 1)) or 0
  if not start_ms or not younger or younger + elder > largest then
    level = nil
  else
    if younger + elder == 0 or now_ms >= start_ms + 2 * a + b then
      start_ms, younger, elder = now_ms, 0, 0
    end
    -- After a step back of the clock, no unit is held for longer than a new one.
    unsaved = start_ms > now_ms + a
    start_ms = min(start_ms, now_ms + a)
    if task ~= 3 and now_ms >= start_ms + a then
      if now_ms < start_ms + 2 * a then
        start_ms, younger, elder, gone = start_ms + a, 0, younger, elder
      else
        start_ms, younger, elder, gone = now_ms, 0, 0, younger + elder
      end
    end
  end
end
holding, burden, lapsed, asked, found = true, 0, 0, cost * c, 0
if level then
  level, mark, is_linear = younger + elder, start_ms, gone == 0
  if task == 3 or task == 4 or task == 6 then
    if extra == start_ms then
      more = min(cost, younger)
    elseif extra == start_ms - a then
      more = min(cost, elder)
    end
  end
  unsaved = unsaved or gone > 0 or task == 4 and more > 0 and extra < start_ms
  found, burden, lapsed = more * c, (level + gone) * c, gone * c
  kept = { start_ms, younger, elder }
end
--@write
local start_ms, younger, elder = values_of(kept, 1, 3)
local moved = task == 4 and more or change
if change > 0 or task == 4 then
  younger = younger + moved
end
if change < 0 or task == 4 then
  local given = task == 4 and more or -change
  if extra == start_ms then
    younger = younger - given
  elseif extra == start_ms - a then
    elder = elder - given
  end
end
value, ttl_ms = format('%013d%d', start_ms, younger), 1
if elder > 0 then
  value = format('%s:%d', value, elder)
end
if younger + elder > 0 then
  ttl_ms = start_ms + 2 * a + b - now_ms + spare_ms
end
