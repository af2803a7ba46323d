-- What the scripts beside this one begin with. KEYS and ARGV are the engine's, for
-- checks of one token bucket that all ask the same; the reply is its, too. They know
-- nothing else: no other algorithm, no second policy, no foreign data, no refusal.
local call, list, unpack, pack = redis.call, unpack, struct.unpack, struct.pack
local format, floor, max = string.format, math.floor, math.max
local nonce, _, _, _, _, cost, capacity = unpack('<ddddddd', ARGV[1])
local time, keys = call('TIME'), KEYS
local now_us = time[1] * 1000000 + time[2]
local now_ms = floor(now_us / 1000)
local reply = { nonce, now_us }
local function tell(verdict, level)
  reply[#reply + 1] = verdict
  reply[#reply + 1] = level
end
