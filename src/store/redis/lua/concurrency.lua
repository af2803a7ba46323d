-- Concurrency.
--
-- KEYS     the letter P, the units that all permits hold, then for each permit
--          its number, the instant at which it expires in milliseconds since the
--          epoch, and its units, as IEEE doubles; the first to expire first.
-- Unit     units. Level: those that are held.
-- ARGV     capacity: the limit; a: a permit's lifetime in milliseconds;
--          b: the number of the permit that this is about
-- Reply    level, mark: when the last permit expires, more: when the cost fits,
--          where it does not fit now, in milliseconds since the epoch
-- Expiry   when the last permit does.
-- Atomic   see the engine.
--@numbers
drop_ms = a
--@read
kept = ''
if is_foreign or stored and (sub(stored, 1, 1) ~= 'P' or #stored % 24 ~= 9) then
  level = nil
elseif stored then
  level = unpack('<d', stored, 2)
  local first = 10
  while first < #stored do
    local number, ends_ms, units = unpack('<ddd', stored, first)
    if ends_ms > now_ms then
      break
    end
    level, first = level - units, first + 24
  end
  kept = sub(stored, first)
  if kept == '' then
    level = 0
  end
  mark = kept ~= '' and unpack('<d', kept, #kept - 15) or 0
  if mark > now_ms + a then
    -- None lives longer than if it were new.
    mark, unsaved = now_ms + a, true
    local parts = {}
    for place = 1, #kept, 24 do
      local number, ends_ms, units = unpack('<ddd', kept, place)
      if not (number >= 1 and ends_ms >= 0 and units >= 1 and units % 1 == 0) then
        level = nil
      end
      parts[#parts + 1] = struct.pack('<ddd', number, min(ends_ms, mark), units)
    end
    kept = table.concat(parts)
  end
end
c = nil
if level and task > 2 then
  -- Where the permit stands, if it is still held.
  local number, from = struct.pack('<d', b), 1
  repeat
    c = find(kept, number, from, true)
    from = c and c + 1
  until not c or c % 24 == 1
  if task == 3 then
    cost = c and unpack('<d', kept, c + 16) or 0
  elseif not c then
    verdict = 0
  end
elseif level and level > most then
  local over, place = level - max(most, 0), 1
  while over > 0 and place < #kept do
    local number, ends_ms, units = unpack('<ddd', kept, place)
    over, more, place = over - units, ends_ms, place + 24
  end
  if over > 0 then
    more = 0
  end
end
--@write
if change > 0 then
  kept = kept .. struct.pack('<ddd', b, now_ms + a, change)
elseif c then
  local units = unpack('<d', kept, c + 16)
  kept = sub(kept, 1, c - 1) .. sub(kept, c + 24)
  if task == 4 then
    kept = kept .. struct.pack('<ddd', b, now_ms + a, units)
  end
end
value = 'P' .. struct.pack('<d', level + change) .. kept
ttl_ms = spare_ms
if kept ~= '' then
  ttl_ms = unpack('<d', kept, #kept - 15) - now_ms + spare_ms
end
