-- Creates or replaces a value. KEYS: the value, and the sorted set of all names. ARGV: the name of the value; the
-- condition: any, absent or version; the expected version; the new version and the value; the lifetime in
-- milliseconds, or an empty text. Returns 1 if the condition is true.
local known = redis.pcall('GET', KEYS[1])
if type(known) == 'table' and known.err then
  redis.call('DEL', KEYS[1])
  known = false
end
if ARGV[2] == 'absent' and known then
  return 0
end
if ARGV[2] == 'version' and (not known or string.sub(known, 1, 16) ~= ARGV[3]) then
  return 0
end
if ARGV[5] == '' then
  redis.call('SET', KEYS[1], ARGV[4])
else
  redis.call('SET', KEYS[1], ARGV[4], 'PX', ARGV[5])
end
if redis.call('TYPE', KEYS[2]).ok ~= 'zset' then
  redis.call('DEL', KEYS[2])
end
redis.call('ZADD', KEYS[2], 0, ARGV[1])
return 1
