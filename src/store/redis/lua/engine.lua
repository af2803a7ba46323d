-- Decides a list of checks, one after another, in one call.
--
-- KEYS     one string for each leg, all legs of all checks in a row.
-- ARGV[1]  numbers as IEEE doubles, little-endian, in a row:
--            nonce: an integer that the reply starts with
--            now in microseconds since the epoch, or 0 to ask this server
--          then for each leg:
--            kind: its algorithm's number, plus 32 on the last leg of a check,
--              plus 64 times what to do: 0 take all or nothing, 1 look only,
--              2 take as much as fits, 3 give back, 4 renew a permit;
--              plus on the first leg, for 0, 512 times how often to do it again:
--              that many equal checks are decided right behind this one
--            cost and capacity, in the algorithm's own unit
--            extra: 0, 1: room beyond the capacity, or if negative, room that is
--              not to be used; 2: the cost of one unit; 3: the mark that it was
--              taken under, or 0 for any
--            a and b, the algorithm's own, and as many more as its file says
-- Reply    integers only, as IEEE doubles, little-endian, in a row in one string,
--          which Redis writes and a client reads faster than a list:
--          nonce, now in microseconds, then for each check its
--          verdict (0 denied; 1 allowed, or with 2 the units taken; -1 foreign
--          data under one of its keys; -2 or less: Redis refused a command, for
--          which word, `refusals` says)
--          and for each leg how it stood before: level, and mark and more where
--          its algorithm has them.
--          For a check that is to be done again: of how many of them this tells,
--          the next ones, and as verdict how many of these were allowed, the
--          first ones; then the same of those that are left.
-- Expiry   every write sets one, in milliseconds, never 0. A key expires when
--          it means the same as no key, never before. Foreign data expires
--          after what the algorithm says.
-- Atomic   because a script runs alone: each check reads all its legs, then
--          charges all or none. What Redis refuses one check (a right it lacks,
--          memory) is that check's alone: the others go on.
--
-- An algorithm's file stands in at two places. It has the numbers, and
-- read: takes more numbers from `at` on, if it has any; from `stored` (a string, or false)
--       it sets level: how much is taken, or nil for foreign data; drop_ms: the
--       milliseconds after which to drop such data; mark and more: what else
--       the caller must know; slack: the highest level that
--       counts as none; unsaved: to be written even if nothing changes; kept:
--       what of `stored` its other part needs; for 3 it may lower cost to what
--       can be given back; is_linear: whether taking a cost more than once adds
--       it to the level as often, and changes nothing else that is told.
--       `most` is the highest level at which the cost fits.
-- write: for a change of level, negative for what is given back, it sets value
--       and ttl_ms.
-- All numbers are integers below 2^53, where a Lua number is exact.

local values_of = unpack
local numbers, unpack, format, floor = ARGV[1], struct.unpack, string.format, math.floor
local nonce, now_us, at = unpack('<dd', numbers)
-- The clock of another machine may lag behind the one that expires keys here.
local spare_ms = 60000
if now_us == 0 then
  local time = redis.call('TIME')
  now_us = time[1] * 1000000 + time[2]
  -- One for the part of a millisecond cut off the level, one for that of now.
  spare_ms = 2
end
local now_ms = floor(now_us / 1000)
local reply, out, key, untold = { nonce, now_us }, 2, 0, 0
local largest = 9007199254740992

while at <= #numbers do
  out = out + 1
  local verdict_at, verdict, past, is_unsaved, refusal = out, 1, nil, false, nil
  local first_at, first_key, times, are_linear = at, key, 1, true
  local kind, cost, capacity, extra, algorithm, task
  local a, b, c, d, e, f, stored, level, mark, more, slack, unsaved, kept, drop_ms, is_linear
  repeat
    kind, cost, capacity, extra, a, b, at = unpack('<dddddd', numbers, at)
    if kind >= 512 then
      if untold == 0 then
        untold = floor(kind / 512) + 1
      end
      kind, times, verdict, out = kind % 512, untold, untold, out + 1
      verdict_at = out
    end
    algorithm, task, key = kind % 32, (kind - kind % 64) / 64, key + 1
    stored = redis.pcall('GET', KEYS[key])
    local is_foreign, is_refused = false, false
    if type(stored) == 'table' then
      is_foreign = string.find(stored.err, 'WRONGTYPE', 1, true)
      is_refused, refusal, stored = not is_foreign, stored.err, false
    end
    local most = capacity + extra - cost
    if task == 2 then
      most = capacity - math.min(cost, extra)
    end
    level, mark, more, slack, unsaved, kept, drop_ms, is_linear = 0, 0, 0, 0, false, nil, 0, false
    --@read
    -- No number of ours is below zero, a fraction, too large, or none at all.
    if level and not (level >= 0 and level <= largest and level % 1 == 0) then
      level = nil
    elseif algorithm > 1 and not (mark >= 0 and mark <= largest and mark % 1 == 0
        and more >= 0 and more <= largest and more % 1 == 0) then
      level = nil
    end
    if is_refused then
      -- What could not be read must not be written over.
      verdict, level, mark, more, unsaved = -2, 0, 0, 0, false
    elseif level == nil then
      verdict = math.min(verdict, -1)
      -- Not ours to overwrite, but it must not stay for ever.
      if task ~= 1 then
        local left_ms = redis.pcall('PTTL', KEYS[key])
        if type(left_ms) == 'number' and (left_ms < 0 or left_ms > drop_ms) then
          redis.pcall('PEXPIRE', KEYS[key], format('%d', drop_ms))
        end
      end
      level, mark, more, unsaved = 0, 0, 0, false
    elseif task < 2 then
      if verdict > 0 and (most < 0 or (level > slack and level > most)) then
        verdict = 0
      elseif verdict > 1 and cost > 0 then
        -- One fits, and behind it as many as there is room for.
        verdict = math.min(verdict, 1 + math.max(floor((most - level) / cost), 0))
      end
      are_linear = are_linear and is_linear
    elseif task == 2 then
      local left = capacity
      if level > slack then
        left = math.max(capacity - level, 0)
      end
      if not past then
        verdict = cost / extra
      end
      verdict = math.min(verdict, floor(left / extra))
    end
    is_unsaved = is_unsaved or unsaved
    out = out + 1
    reply[out] = level
    if algorithm > 1 then
      out = out + 1
      reply[out] = mark
    end
    if algorithm > 2 then
      out = out + 1
      reply[out] = more
    end
    if kind % 64 < 32 then
      past = { cost, capacity, extra, algorithm, a, b, c, d, e, f, level, mark, more, unsaved, kept or false, key, past or false }
    end
  until kind % 64 >= 32

  if times > 1 and not are_linear and (verdict > 0 or is_unsaved) then
    times, verdict = 1, math.min(verdict, 1)
  end
  if task ~= 1 and (verdict > 0 or is_unsaved) then
    local leg_key = key
    while leg_key do
      local change = 0
      if verdict > 0 then
        if task == 0 then
          change = verdict * cost
        elseif task == 2 then
          change = verdict * extra
        elseif task == 3 then
          change = -math.min(level, cost)
        end
      end
      if change ~= 0 or unsaved or (task == 4 and kept) then
        local value, ttl_ms
        --@write
        local written = redis.pcall('PSETEX', KEYS[leg_key], format('%d', ttl_ms), value)
        if written.err then
          -- Refused one, Redis refuses all: this is the first.
          verdict, refusal = -2, written.err
          break
        end
      end
      leg_key = nil
      if past then
        cost, capacity, extra, algorithm = past[1], past[2], past[3], past[4]
        a, b, c, d, e, f = past[5], past[6], past[7], past[8], past[9], past[10]
        level, mark, more, unsaved, kept = past[11], past[12], past[13], past[14], past[15]
        leg_key, past = past[16], past[17]
      end
    end
  end
  if verdict == -2 then
    -- -3 for the first of these, -4 for the second. Of a right that is lacking,
    -- each version says something else about the user.
    local refusals = { 'OOM', 'READONLY', 'MISCONF', 'NOREPLICAS', 'user ' }
    refusal = string.gsub(refusal, 'User', 'user')
    for number, word in ipairs(refusals) do
      if string.find(refusal, word, 1, true) then
        verdict = -2 - number
        break
      end
    end
  end
  reply[verdict_at] = verdict
  if untold > 0 then
    reply[verdict_at - 1], untold = times, untold - times
    if untold > 0 then
      at, key = first_at, first_key
    end
  end
end

if out > 4096 then
  -- Lua has no room for many more values at once.
  local parts = {}
  for first = 1, out, 4096 do
    local last = math.min(first + 4095, out)
    local doubles = '<' .. string.rep('d', last - first + 1)
    parts[#parts + 1] = struct.pack(doubles, values_of(reply, first, last))
  end
  return table.concat(parts)
end
return struct.pack('<' .. string.rep('d', out), values_of(reply, 1, out))
