-- Creates or replaces a value, behind condition.lua. KEYS: the value, and the sorted set of all names. Further ARGV: the
-- new version and the value; the lifetime in milliseconds, or an empty text. Returns 1.
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
