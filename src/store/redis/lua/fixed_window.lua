-- Fixed window.
--
-- KEYS     the window's end in milliseconds since the epoch, 13 digits, then
--          the units used: up to 999,999 Redis keeps the whole as one integer.
-- Unit     units. Level: those used.
-- ARGV     capacity: the limit; a: the window in milliseconds; b: 1 where
--          windows start at its multiples, else 0
-- Mark     the window's end in milliseconds since the epoch
-- Expiry   when the window ends.
-- Atomic   see the engine.
--@read
if is_foreign or stored and (#stored < 14 or #stored > 29) then
  level, mark = nil, a
else
  local now_ms = math.floor(now_us / 1000)
  -- The end of a window that starts now, and the latest that any may have.
  local latest_ms = now_ms + a
  if b == 1 then
    latest_ms = (math.floor(now_ms / a) + 1) * a
  end
  mark = latest_ms
  local ends_ms = stored and tonumber(string.sub(stored, 1, 13))
  if ends_ms and ends_ms > now_ms then
    level = math.min(tonumber(string.sub(stored, 14)), 9007199254740991)
    mark, unsaved = math.min(ends_ms, latest_ms), ends_ms > latest_ms
  end
end
--@write
value = format('%013d%d', mark, level)
ttl_ms = mark - math.floor(now_us / 1000) + spare_ms
