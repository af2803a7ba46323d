-- Penalty.
--
-- KEYS     13 digits for the end of the ban and 13 for that of the window of strikes,
--          in milliseconds since the epoch, or 0; 2 digits for how many bans count;
--          then the strikes in that window. No key: a caller without strikes.
-- Unit     strikes. Level: strikes; during a ban, one more than the capacity, and two more
--          if this check has started it by the strikes in e or by task 7.
-- ARGV     capacity: with so many strikes a ban begins; a: the window of strikes, b: the
--          first ban, c: the longest ban, d: the time after which bans no longer count,
--          all in milliseconds; e: strikes that the sender counted by itself; f: 1 if a
--          denial is a strike, plus 2 if requests and strikes prolong a ban, plus 4 if task 0
--          writes the state in any case, as the server refused to write before
--          For task 7 the cost is how long the caller is banned, in milliseconds.
-- Reply    level, mark: the end of the ban, or else of the window of strikes, or 0;
--          more: how many bans count. All after the strikes in e and after task 7.
-- Expiry   when neither the ban nor a strike nor the number of bans counts any more.
-- Atomic   see the engine.
--@numbers
c, d, e, f, at = unpack('<dddd', numbers, at)
drop_ms = max(a, c + d)
--@read
if is_foreign or stored and (find(stored, '%D') or #stored < 29 or #stored > 44) then
  level = nil
else
  is_linear = true
  if stored then
    local until_ms, ends_ms = tonumber(sub(stored, 1, 13)), tonumber(sub(stored, 14, 26))
    more = tonumber(sub(stored, 27, 28))
    if until_ms > now_ms then
      level, mark = capacity + 1, until_ms
    else
      if until_ms + d <= now_ms then
        more = 0
      end
      if ends_ms > now_ms then
        level, mark = min(tonumber(sub(stored, 29)), capacity - 1), min(ends_ms, now_ms + a)
      end
      -- The end of the last ban, from which on the time counts until it is forgiven.
      kept = more > 0 and until_ms or 0
    end
  end
  if f >= 4 then
    f = f - 4
    if task == 0 then
      unsaved, is_linear = true, false
    end
  end
  if task == 0 and e > 0 and level <= capacity then
    unsaved, is_linear = true, false
    if level + e >= capacity then
      level, more = capacity + 2, min(more + 1, 63)
      mark = min(now_ms + min(b * 2 ^ (more - 1), c), 9999999999999)
    else
      mark = level == 0 and min(now_ms + a, 9999999999999) or mark
      level = level + e
    end
  end
  local least_ms = 0
  if task == 7 then
    least_ms = cost
  elseif f >= 2 and level > capacity and (task == 0 or task == 2 or task == 5 and cost > 0) then
    least_ms = min(b * 2 ^ max(more - 1, 0), c)
  end
  if least_ms > 0 then
    local until_ms = min(now_ms + least_ms, 9999999999999)
    if level <= capacity then
      level, mark, unsaved = capacity + 2, until_ms, true
    elseif until_ms > mark then
      mark, unsaved = until_ms, true
    end
  end
  if task == 3 or task == 7 then
    cost = 0
  elseif task == 0 and f % 2 == 1 and level <= capacity then
    on_denial, is_linear = 1, false
  end
end
--@write
if change > 0 then
  if level + change >= capacity then
    level, more = capacity + 1, min(more + 1, 63)
    mark = min(now_ms + min(b * 2 ^ (more - 1), c), 9999999999999)
  else
    mark = level == 0 and min(now_ms + a, 9999999999999) or mark
    level = level + change
  end
end
local forgiven_ms = more > 0 and d or 0
if level > capacity then
  value = format('%013d%013d%02d%d', mark, 0, more, 0)
  ttl_ms = mark + forgiven_ms - now_ms + spare_ms
else
  local until_ms = kept or 0
  value = format('%013d%013d%02d%d', until_ms, mark, more, level)
  ttl_ms = max(now_ms, mark, until_ms + forgiven_ms) - now_ms + spare_ms
end
