-- Acquires or extends a lease. KEYS: the lease. ARGV: the token of the holder; the lifetime in milliseconds.
-- Returns 1 if the token has the lease.
local holder = redis.pcall('GET', KEYS[1])
if type(holder) == 'table' and holder.err then
  redis.call('DEL', KEYS[1])
  holder = false
end
if holder and holder ~= ARGV[1] then
  return 0
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
