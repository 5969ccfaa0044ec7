-- Ends a lease. KEYS: the lease. ARGV: the token of the holder.
if redis.pcall('GET', KEYS[1]) == ARGV[1] then
  redis.call('DEL', KEYS[1])
end
return 1
