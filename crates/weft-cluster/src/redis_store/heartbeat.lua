-- Counts the processes of the cluster. KEYS: a sorted set of their names with the times of their last
-- reports. ARGV: the name of this process, or an empty text to count only; the time in seconds after which a
-- process no longer counts.
local time = redis.call('TIME')
local now, life = time[1] + time[2] / 1000000, tonumber(ARGV[2])
if redis.call('TYPE', KEYS[1]).ok ~= 'zset' then
  redis.call('DEL', KEYS[1])
end
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - life)
if ARGV[1] ~= '' then
  redis.call('ZADD', KEYS[1], now, ARGV[1])
  redis.call('EXPIRE', KEYS[1], life)
end
return redis.call('ZCARD', KEYS[1])
