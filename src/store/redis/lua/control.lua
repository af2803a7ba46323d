-- Replaces a control document that nobody has changed since it was read.
if redis.call('GETRANGE', KEYS[1], 0, ARGV[1] - 1) ~= ARGV[2] then
    return 0
end
redis.call('SET', KEYS[1], ARGV[3])
return 1
