-- Finds the end of the stream of messages. KEYS: the stream. ARGV: the last entry that the reader has seen, or
-- an empty text. Returns 1 if the stream still has that entry, so that nothing behind it is lost, and the last
-- entry. A new stream gets an entry without a message, so that each reader has seen one.
local function last_of(stream)
  return redis.call('XREVRANGE', stream, '+', '-', 'COUNT', 1)[1]
end
if redis.call('TYPE', KEYS[1]).ok ~= 'stream' then
  redis.call('DEL', KEYS[1])
end
if not last_of(KEYS[1]) then
  redis.call('XADD', KEYS[1], '*', 'begin', '')
end
local is_known = ARGV[1] ~= '' and #redis.call('XRANGE', KEYS[1], ARGV[1], ARGV[1]) > 0
return { is_known and '1' or '0', last_of(KEYS[1])[1] }
