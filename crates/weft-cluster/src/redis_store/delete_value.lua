-- Deletes a value, behind condition.lua. KEYS: the value, and the sorted set of all names. Returns 1.
redis.call('DEL', KEYS[1])
redis.pcall('ZREM', KEYS[2], ARGV[1])
return 1
