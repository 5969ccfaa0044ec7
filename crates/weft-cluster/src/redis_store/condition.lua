-- Begins scripts that change a value. Returns 0 if the condition is false. KEYS: the value. ARGV: the name of the value;
-- the condition: any, absent or version; the expected version. A value of another type counts as absent.
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
