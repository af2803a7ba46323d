-- Decides a list of checks, one after another, in one call.
--
-- KEYS     one string for each charge, all charges of all checks in a row.
-- ARGV[1]  numbers as IEEE doubles, little-endian, in a row:
--            nonce: the integer with which the reply starts
--            now in microseconds since the epoch, or 0 to use this server's clock
--          then for checks in a row that ask the same, each of its own keys:
--            how many checks these are
--            times: how many equal checks in a row each stands for; more than one
--              only for task 0
--          and for each charge:
--            kind: its algorithm's number, plus 16 if units may be held of the bucket,
--              plus 32 on the last charge of a check,
--              plus 64 times the task: 0 take all or nothing, 1 peek,
--              2 take as much as fits, 3 refund, 4 renew a permit or a hold,
--              5 debit: charge each bucket as much as it may owe, 6 end a hold,
--              7 ban
--            cost and capacity, in the algorithm's own unit
--            extra: for tasks 0, 1, 5 and 6 room beyond the capacity, or if negative,
--              room to leave; for 2 the cost of one unit; for 3 the mark at which it was
--              taken, or 0 for any
--            a and b, the algorithm's own numbers, and more if its file says so
--            for task 5, and if units may be held: the cost of one unit
--            if units may be held: how many units of the cost are held in place of charged,
--              or for tasks 3, 4 and 6 were held; the lifetime of a hold and the time after
--              which a full bucket is empty, in milliseconds; the mark of the generation in
--              which they were held; and for task 6, what of the cost was not held, or for
--              task 4 the number of the extension: the same number again moves nothing
-- Reply    integers only, as IEEE doubles, little-endian, in a row in one string,
--          which Redis writes and a client reads faster than a list:
--          nonce, now in microseconds, then for each check its
--          verdict (0 denied; 1 allowed, or for task 2 the units taken; -1
--          unexpected data under one of its keys; -2 or less: Redis refused a
--          command; `refusals` has the words)
--          and for each charge the state before: level, and mark and more if its
--          algorithm has them; then if units may be held, how many are held, how many
--          of those that the task names still are, and the mark of the generation in
--          which units are held now.
--          For equal checks: how many of them the next result is for, and as verdict
--          how many of these were allowed, the first ones; then the same for those
--          that are left.
-- Expiry   every write sets one, in milliseconds, never 0. A key expires when
--          it means the same as no key, never before. Unexpected data expires
--          after the time that the algorithm sets.
-- Atomic   because a script runs alone: each check reads all its buckets, then
--          charges all or none. If Redis refuses a command of one check (for lack
--          of a right or of memory), the other checks are decided all the same.
--
-- What is held of a bucket stands behind its own state: the start of the younger generation
-- and until when the value counts, in milliseconds since the epoch (6 bytes each), for the
-- younger and the elder generation the mark and the units (7 bytes each), the number of the
-- last extension into the younger one, or 0 (6 bytes), and the letter h.
-- The elder generation started a lifetime before the younger one; a generation lapses two
-- lifetimes after its start. What has lapsed is charged as of then. A charge of which no
-- units may be held leaves those that are held as they are.
--
-- An algorithm's file is inserted at three places, the last two twice.
-- numbers: reads more numbers from `at` on, if it has any, and sets slack: the
--       highest level that counts as none; drop_ms: the milliseconds after which
--       unexpected data is dropped. All checks that ask the same share these.
--       In the write part, these two are those of the last charge, so it reads neither.
-- read: from `stored` (a string, or false)
--       it sets level: how much is taken, or nil for unexpected data; mark and
--       more: what else the reply needs; unsaved: whether to write even without a
--       change; kept: what the write part needs of `stored`. For task 3 it may lower
--       cost to what can be refunded; is_linear: whether n equal checks add n times
--       the cost to the level and change nothing else in the reply; on_denial: the change
--       if the check is denied, by this charge or by another. `most` is the
--       highest level at which the cost fits.
-- write: for a change of level, negative for a refund, it sets value and ttl_ms; no
--       value if there is nothing to write. Without a change, the key expires no earlier
--       than before: numbers of another version may count it for longer.
-- All numbers are integers below 2^53, where a Lua number is exact.

local values_of = unpack
local call, pack, unpack, format, floor = redis.pcall, struct.pack, struct.unpack, string.format, math.floor
local find, sub, byte, min, max = string.find, string.sub, string.byte, math.min, math.max
local keys, numbers = KEYS, ARGV[1]
local nonce, now_us, at = unpack('<dd', numbers)
-- The clock of another machine may lag behind the one that expires keys here.
local spare_ms = 60000
local now_ms = floor(now_us / 1000)
if now_us == 0 then
  local time = redis.call('TIME')
  now_us = time[1] * 1000000 + time[2]
  now_ms = floor(now_us / 1000)
  -- One for the part of a millisecond cut off the level, one for that cut off now.
  spare_ms = 2
end
local reply, out, key = { nonce, now_us }, 2, 0
-- A mark tells generations apart: it has their start, and a number of the call that starts
-- them, so that a reset changes it.
local function mark_of(start_ms)
  return start_ms % 8796093022208 * 1024 + nonce % 1024
end
local mark_now = mark_of(now_ms)
local largest, nothing = 9007199254740992, {}

-- The checks in a row that ask the same: how many are left, how many equal checks each
-- stands for, and where their numbers are, of which those of one charge are read.
local alike, times, first_at, is_joint = 0, 1, at, false
local kind, cost, capacity, extra, algorithm, task, most, slack, drop_ms, unit
local a, b, c, d, e, f
-- What is asked of the units that are held, and what is held of the bucket once that is open.
local holds, held_cost, charged, asked, lifetime_ms, remembered_ms, generation, beyond
local is_open, start_ms, ends_ms, young, younger, old, elder, extension, bare, taken, given, is_elder, lapses_ms
-- How many of the equal checks are not decided yet.
local untold = 0

while key < #keys do
  local is_new = false
  if untold == 0 then
    if alike == 0 then
      alike, times, at = unpack('<dd', numbers, at)
      first_at, is_joint, is_new = at, false, true
    end
    alike, untold = alike - 1, times
  end
  if is_joint then
    at = first_at
  end
  if times > 1 then
    out = out + 1
  end
  out = out + 1
  local verdict_at, verdict, part, first_key = out, untold, untold, key
  local past, is_unsaved, are_linear, refusal = nil, false, true, nil
  local is_struck, level, mark, more, unsaved, kept, on_denial
  repeat
    if is_new or is_joint then
      kind, cost, capacity, extra, a, b, at = unpack('<dddddd', numbers, at)
      algorithm, task, holds = kind % 16, (kind - kind % 64) / 64, kind % 32 >= 16
      -- The numbers of one charge replace those of the charge before, and some tasks
      -- change the cost.
      is_joint = is_joint or kind % 64 < 32 or task > 2 and task ~= 6
      if task == 2 then
        most = capacity - min(cost, extra)
      else
        most = capacity + extra - cost
      end
      slack, held_cost = 0, 0
      --@numbers
      if holds then
        unit, asked, lifetime_ms, remembered_ms, generation, beyond, at = unpack('<dddddd', numbers, at)
        if task == 0 or task == 3 then
          held_cost = min(cost, asked * unit)
        end
      elseif task == 5 then
        unit, at = unpack('<d', numbers, at)
      end
    end
    if task == 2 and not past then
      verdict = largest
    end
    key = key + 1
    local stored, is_foreign, is_refused, is_linear = call('GET', keys[key]), false, false, false
    if stored and stored.err then
      is_foreign = find(stored.err, 'WRONGTYPE', 1, true)
      is_refused, refusal, stored = not is_foreign, stored.err, false
    end
    is_open, on_denial = false, 0
    local others, found, lapses, is_changed, is_ahead, opens = 0, 0, nothing, false, false, holds
    local at_us, at_ms, at_task, is_read = now_us, now_ms, task, false
    repeat
      if opens then
        opens, is_open, bare = false, true, stored
        start_ms, ends_ms, young, younger, old, elder, extension = now_ms, 0, 0, 0, 0, 0, 0
        if stored and #stored > 46 and byte(stored, -1) == 104 then
          start_ms, ends_ms, young, younger, old, elder, extension = unpack('<I6I6I7I7I7I7I6', stored, #stored - 46)
          if young > largest or old > largest or younger + elder > largest then
            is_foreign, young, younger, old, elder = true, 0, 0, 0, 0
          end
          bare = #stored > 47 and sub(stored, 1, -48)
          stored = bare
        end
        taken, given, is_elder, lapses_ms = 0, 0, false, 0
        if holds and not is_foreign then
          local lasts_ms = now_ms - start_ms
          if younger + elder == 0 then
            start_ms, young, old, extension = now_ms, mark_now, 0, 0
          elseif lasts_ms >= lifetime_ms then
            local is_new = lasts_ms < 2 * lifetime_ms
            lapses = {}
            if younger > 0 and not is_new then
              lapses[1] = { younger, start_ms + 2 * lifetime_ms }
            end
            if elder > 0 then
              lapses[#lapses + 1] = { elder, start_ms + lifetime_ms }
            end
            if is_new then
              start_ms, old, elder = start_ms + lifetime_ms, young, younger
            else
              start_ms, old, elder = now_ms, 0, 0
            end
            young, younger, extension = mark_of(start_ms), 0, 0
          elseif -lasts_ms > lifetime_ms then
            -- After a step back of the clock, no unit is held for longer than a new one.
            start_ms, is_ahead = now_ms + lifetime_ms, true
          end
          others = (younger + elder) * unit
          lapses_ms = start_ms + 2 * lifetime_ms + remembered_ms + spare_ms
          if task == 0 then
            taken = asked
          elseif task > 2 then
            is_elder = generation == old
            if generation == young then
              found = asked < younger and asked or younger
            elseif is_elder then
              found = min(asked, elder)
            end
            if task == 3 or task == 6 then
              given = found
            elseif task == 4 and extension == beyond then
              -- It ran before, and its reply was lost.
              found = min(asked, younger)
            elseif task == 4 and is_elder and found > 0 then
              taken, given, extension = found, found, beyond
            end
          end
          if task == 3 then
            cost = cost - held_cost
          end
          if task == 2 then
            most = capacity - min(cost, extra) - others
          else
            most = capacity + extra - cost - others
          end
        end
      end
      local lapsed = lapses[#lapses]
      if lapsed then
        now_us, now_ms, task = lapsed[2] * 1000, lapsed[2], 4
      end
      level, mark, more, unsaved, kept = 0, 0, 0, false, nil
      --@read
      if lapsed and level then
        lapses[#lapses] = nil
        local change, leg_key, value, ttl_ms = lapsed[1] * unit, key, nil, nil
        --@write
        stored, bare, is_changed = value, value, true
      else
        -- A charge of which nothing may be held finds what is held where its own form ends.
        opens = level == nil and not is_open and algorithm < 5 and stored and #stored > 46
            and byte(stored, -1) == 104
        is_read = not opens
      end
      now_us, now_ms, task = at_us, at_ms, at_task
    until is_read
    if holds and level then
      is_linear = is_linear and not is_changed and not is_ahead
      -- What has lapsed and counts no more is not written: it would start a window.
      is_changed = is_ahead or is_changed and level > 0
      -- What was held before makes no caller known that was forgotten since.
      if task == 4 or task == 6 then
        unsaved = is_changed and not unsaved
      else
        unsaved = is_changed or unsaved
      end
    end
    -- No number that this script wrote is negative, a fraction, too large, or NaN.
    if level and not (level >= 0 and level <= largest and level % 1 == 0) then
      level = nil
    elseif algorithm > 1 and not (mark >= 0 and mark <= largest and mark % 1 == 0
        and more >= 0 and more <= largest and more % 1 == 0) then
      level = nil
    end
    if is_refused then
      -- A value that could not be read must not be overwritten.
      verdict, level, mark, more, unsaved = -2, 0, 0, 0, false
    elseif level == nil then
      verdict = min(verdict, -1)
      -- Unexpected data is not overwritten, but it must not stay indefinitely.
      if task ~= 1 then
        local left_ms, longest_ms = call('PTTL', keys[key]), max(math.ceil(drop_ms), 1)
        if type(left_ms) == 'number' and (left_ms < 0 or left_ms > longest_ms) then
          call('PEXPIRE', keys[key], format('%d', longest_ms))
        end
      end
      level, mark, more, unsaved = 0, 0, 0, false
    elseif task < 2 then
      if verdict > 0 and (most < 0 or (level > slack and level > most)) then
        verdict = 0
      elseif verdict > 1 and cost > 0 then
        -- One fits, and after it as many as there is room for.
        verdict = min(verdict, 1 + max(floor((most - level) / cost), 0))
      end
      are_linear = are_linear and is_linear
    elseif task == 2 and algorithm > 5 then
      -- A penalty grants nothing.
      if level > capacity then
        verdict = min(verdict, 0)
      end
      cost, extra = 0, 0
    elseif task == 2 then
      local left = capacity
      if level > slack then
        left = max(capacity - level, 0)
      end
      left = max(left - others, 0)
      verdict = min(verdict, cost / extra, floor(left / extra))
    end
    charged = cost - held_cost
    if level and task > 4 and task < 7 then
      local paid, more_cost, left = 0, cost, capacity + extra - (level > slack and level or 0) - others
      if task == 6 then
        paid, more_cost = min(cost - beyond, found * unit), beyond
        left = left + found * unit - paid
      end
      if more_cost > 0 then
        left = max(left, 0)
        more_cost = min(more_cost, left - left % unit)
      end
      charged = paid + more_cost
    end
    is_unsaved, is_struck = is_unsaved or unsaved, is_struck or on_denial > 0
    out = out + 1
    reply[out] = level
    if algorithm > 1 then
      out = out + 1
      reply[out] = mark
      if algorithm > 2 then
        out = out + 1
        reply[out] = more
      end
    end
    if holds then
      reply[out + 1], reply[out + 2], reply[out + 3] = younger + elder, found, young
      out = out + 3
    end
    if kind % 64 < 32 then
      past = { cost, capacity, extra, algorithm, a, b, c, d, e, f, level, mark, more, unsaved, kept or false, key, past or false, on_denial, charged, false }
      if is_open then
        past[20] = { start_ms, ends_ms, young, younger, old, elder, extension, bare, taken, given, is_elder, lapses_ms }
      end
    end
  until kind % 64 >= 32

  if part > 1 and (not are_linear and (verdict > 0 or is_unsaved) or is_struck and verdict < part) then
    part, verdict = 1, min(verdict, 1)
  end
  if task ~= 1 and (verdict > 0 or is_unsaved or is_struck) then
    local leg_key = key
    while leg_key do
      local change = 0
      if verdict > 0 then
        if task == 0 or task > 4 then
          change = verdict * charged
        elseif task == 2 then
          change = verdict * extra
        elseif task == 3 then
          change = -min(level, cost)
        end
      elseif verdict == 0 then
        change = on_denial
      end
      local is_moved = is_open and verdict > 0 and taken + given > 0
      if is_moved then
        younger = younger + verdict * taken
        if is_elder then
          elder = elder - given
        else
          younger = younger - given
        end
      end
      if change ~= 0 or unsaved or is_moved or (task == 4 and kept and algorithm == 5) then
        local value, ttl_ms, is_deleted
        if change ~= 0 or unsaved or not is_open then
          --@write
        else
          value, ttl_ms = bare or '', 0
        end
        if change == 0 and unsaved and value and algorithm < 5 then
          local left_ms = call('PTTL', keys[leg_key])
          ttl_ms = type(left_ms) == 'number' and max(ttl_ms, left_ms) or ttl_ms
        end
        if is_open and value then
          local is_held = younger + elder > 0
          if value == '' and not is_held then
            -- A user without this right leaves a key for a millisecond.
            is_deleted = type(call('DEL', keys[leg_key])) == 'number'
          end
          if is_held or value == '' then
            ends_ms = min(max(ends_ms, now_ms + ttl_ms, lapses_ms), 281474976710655)
            value = value .. pack('<I6I6I7I7I7I7I6', start_ms, ends_ms, young, younger, old, elder, extension) .. 'h'
          end
          if is_held then
            ttl_ms = ends_ms - now_ms
          elseif ttl_ms == 0 then
            ttl_ms = bare and ends_ms > now_ms and ends_ms - now_ms or 1
          end
        end
        local written = value and not is_deleted and call('PSETEX', keys[leg_key], format('%d', ttl_ms), value)
        if written and written.err then
          -- If Redis refuses one write, it refuses all, so this is the first.
          verdict, refusal = -2, written.err
          break
        end
      end
      leg_key = nil
      if past then
        cost, capacity, extra, algorithm = past[1], past[2], past[3], past[4]
        a, b, c, d, e, f = past[5], past[6], past[7], past[8], past[9], past[10]
        level, mark, more, unsaved, kept = past[11], past[12], past[13], past[14], past[15]
        local held = past[20]
        is_open, leg_key, on_denial, charged, past = held, past[16], past[18], past[19], past[17]
        if held then
          start_ms, ends_ms, young, younger, old, elder, extension = values_of(held, 1, 7)
          bare, taken, given, is_elder, lapses_ms = values_of(held, 8, 12)
        end
      end
    end
  end
  if verdict == -2 then
    -- -3 for the first of these, -4 for the second. Versions name the user who lacks a
    -- right in different ways.
    local refusals = { 'OOM', 'READONLY', 'MISCONF', 'NOREPLICAS', 'user ' }
    refusal = string.gsub(refusal, 'User', 'user')
    for number, word in ipairs(refusals) do
      if find(refusal, word, 1, true) then
        verdict = -2 - number
        break
      end
    end
  end
  reply[verdict_at] = verdict
  untold = untold - part
  if times > 1 then
    reply[verdict_at - 1] = part
    if untold > 0 then
      key = first_key
    end
  end
end

if out > 4096 then
  -- Lua has no room for many more values at once.
  local parts = {}
  for first = 1, out, 4096 do
    local last = math.min(first + 4095, out)
    local doubles = '<' .. string.rep('d', last - first + 1)
    parts[#parts + 1] = pack(doubles, values_of(reply, first, last))
  end
  return table.concat(parts)
end
return pack('<' .. string.rep('d', out), values_of(reply, 1, out))
