-- Shared by all algorithms: the clock, and what each algorithm adds.
--
-- KEYS     one string per leg, all legs of all checks in a row.
-- ARGV     1 nonce: an integer that the reply starts with
--          2 now in microseconds since the epoch, or 0 to ask this server
--          then for each check:
--            1 to charge, 0 to look only
--            the number of its legs
--            for each leg, five integers:
--              algorithm, cost, capacity (both in the algorithm's own unit),
--              and the algorithm's own two
-- Reply    integers only: nonce, now in microseconds, then for each check its
--          verdict (1 allowed, 0 denied, -1 foreign data under one of its keys)
--          and for each leg two integers: level, and the algorithm's mark.
-- Expiry   every write sets one, in milliseconds, never 0. A key expires when
--          it means the same as no key, never before.
-- Atomic   because a script runs alone: checks are decided one after another,
--          each reads all its legs, then charges all or none.
--
-- An algorithm defines
--   read[n](key, capacity, a, b) -> level, mark, unsaved
--                                or nil and the milliseconds after which foreign data expires
--   slack[n], the highest level that counts as none
--   write[n](key, level, mark, capacity, a)
-- All numbers are integers below 2^53, where a Lua number is exact.

local read, write, slack = {}, {}, {}
local call, pcall_redis = redis.call, redis.pcall
local floor, find, sub, format = math.floor, string.find, string.sub, string.format

local now_us = tonumber(ARGV[2])
-- The clock of another machine may lag behind the one that expires keys here.
local spare_ms = 60000
if now_us == 0 then
  local time = call('TIME')
  now_us = time[1] * 1000000 + time[2]
  -- One for the part of a millisecond cut off the level, one for that of now.
  spare_ms = 2
end
