-- Decides a list of checks, one after another, in one call.
--
-- KEYS     one string for each leg, all legs of all checks in a row.
-- ARGV[1]  numbers as IEEE doubles, little-endian, in a row:
--            nonce: an integer that the reply starts with
--            now in microseconds since the epoch, or 0 to ask this server
--          then five for each leg:
--            kind: its algorithm's number, plus 32 on the last leg of a check,
--              plus 64 to look only
--            cost and capacity, in the algorithm's own unit
--            a and b, the algorithm's own
-- Reply    integers only: nonce, now in microseconds, then for each check its
--          verdict (1 allowed, 0 denied, -1 foreign data under one of its keys,
--          -2 a command was refused)
--          and for each leg two: level and mark.
-- Expiry   every write sets one, in milliseconds, never 0. A key expires when
--          it means the same as no key, never before. Foreign data expires
--          after what the algorithm says.
-- Atomic   because a script runs alone: each check reads all its legs, then
--          charges all or none. What Redis refuses one check (a right it lacks,
--          memory) is that check's alone: the others go on.
--
-- An algorithm's file stands in at two places. It has the five numbers, and
-- read: from `stored` (a string, or false) it sets level: how much is taken,
--       or nil for foreign data; mark: what else it must know, or for foreign
--       data the milliseconds after which to drop it; slack: the highest level
--       that counts as none; unsaved: to be written even if nothing is charged.
-- write: from level and mark it sets value and ttl_ms.
-- All numbers are integers below 2^53, where a Lua number is exact.

local numbers, unpack, format = ARGV[1], struct.unpack, string.format
local nonce, now_us, at = unpack('<dd', numbers)
-- The clock of another machine may lag behind the one that expires keys here.
local spare_ms = 60000
if now_us == 0 then
  local time = redis.call('TIME')
  now_us = time[1] * 1000000 + time[2]
  -- One for the part of a millisecond cut off the level, one for that of now.
  spare_ms = 2
end
local reply, out, key = { nonce, now_us }, 2, 0

while at <= #numbers do
  local first, legs, verdict, to_save = at, 0, 1, nil
  local kind, cost, capacity, a, b
  out = out + 1
  repeat
    kind, cost, capacity, a, b, at = unpack('<ddddd', numbers, at)
    legs = legs + 1
    local algorithm = kind % 32
    local stored = redis.pcall('GET', KEYS[key + legs])
    local is_foreign, is_refused = false, false
    if type(stored) == 'table' then
      is_foreign = string.find(stored.err, 'WRONGTYPE', 1, true)
      is_refused, stored = not is_foreign, false
    elseif stored then
      is_foreign = string.find(stored, '%D')
    end
    local level, mark, slack, unsaved = 0, 0, 0, false
    --@read
    if is_refused then
      -- What could not be read must not be written over.
      verdict, level, mark, unsaved = -2, 0, 0, false
    elseif level == nil then
      verdict = math.min(verdict, -1)
      -- Not ours to overwrite, but it must not stay for ever.
      if kind < 64 then
        local left_ms = redis.pcall('PTTL', KEYS[key + legs])
        if type(left_ms) == 'number' and (left_ms < 0 or left_ms > mark) then
          redis.pcall('PEXPIRE', KEYS[key + legs], mark)
        end
      end
      level, mark = 0, 0
    elseif verdict == 1 and (cost > capacity or (level > slack and level + cost > capacity)) then
      verdict = 0
    end
    if unsaved then
      to_save = to_save or {}
      to_save[legs] = true
    end
    reply[out + legs * 2 - 1], reply[out + legs * 2] = level, mark
  until kind % 64 >= 32

  if kind < 64 and (verdict == 1 or to_save) then
    -- Backwards, as the numbers of the last leg are at hand.
    for leg = legs, 1, -1 do
      if leg < legs then
        kind, cost, capacity, a, b = unpack('<ddddd', numbers, first + 40 * (leg - 1))
      end
      if verdict ~= 1 then
        cost = 0
      end
      if cost > 0 or (to_save and to_save[leg]) then
        local algorithm = kind % 32
        local level, mark = reply[out + leg * 2 - 1] + cost, reply[out + leg * 2]
        local value, ttl_ms
        --@write
        local written = redis.pcall('PSETEX', KEYS[key + leg], format('%d', ttl_ms), value)
        if written.err then
          -- Refused one, Redis refuses all: this is the first.
          verdict = -2
          break
        end
        reply[out + leg * 2 - 1] = level
      end
    end
  end
  reply[out] = verdict
  out, key = out + legs * 2, key + legs
end

return reply
