-- A token bucket in two keys, with the work that Spring Cloud Gateway's script
-- does: two GET, two SETEX.
-- KEYS: the tokens that were left; the second in which they were counted.
-- ARGV: tokens that flow in, in so many seconds; capacity; cost.
-- Reply: whether it is admitted, and how many tokens are left.
-- Both expire when the bucket could have filled twice.
local rate = tonumber(ARGV[1]) / tonumber(ARGV[2])
local capacity, cost = tonumber(ARGV[3]), tonumber(ARGV[4])
local now = tonumber(redis.call("TIME")[1])
local left = tonumber(redis.call("GET", KEYS[1]) or capacity)
local counted = tonumber(redis.call("GET", KEYS[2]) or now)
left = math.min(capacity, left + math.max(0, now - counted) * rate)
local is_admitted = left >= cost
if is_admitted then
  left = left - cost
end
local ttl = math.ceil(2 * capacity / rate)
redis.call("SETEX", KEYS[1], ttl, left)
redis.call("SETEX", KEYS[2], ttl, now)
return { is_admitted and 1 or 0, left }
