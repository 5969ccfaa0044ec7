-- Lists names and versions of values. KEYS: the sorted set of all names. ARGV: the beginning of the keys of
-- values; the first and the last name, as for ZRANGEBYLEX; the maximum number of names. Returns the number of
-- names that were read, the last of them, and then each name with its version. Names whose value has expired are
-- removed.
if redis.call('TYPE', KEYS[1]).ok ~= 'zset' then
  redis.call('DEL', KEYS[1])
end
local names = redis.call('ZRANGEBYLEX', KEYS[1], ARGV[2], ARGV[3], 'LIMIT', 0, ARGV[4])
local found = { tostring(#names), names[#names] or '' }
for _, name in ipairs(names) do
  local version = redis.pcall('GETRANGE', ARGV[1] .. name, 0, 15)
  if type(version) == 'string' and #version == 16 then
    found[#found + 1] = name
    found[#found + 1] = version
  else
    redis.call('ZREM', KEYS[1], name)
  end
end
return found
