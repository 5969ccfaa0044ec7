-- Charges requests. KEYS: a hash for each limit and client. ARGV: the name of this process; then for each
-- key the counter, the acknowledged requests, all requests, the time of a request and the capacity in
-- microseconds. A hash has the field `f`, the time at which the bucket is full, by the clock of the store, and
-- for each counter its last total with the time of the report. The hash outlives the time at which the bucket is
-- full, longer than a report is repeated. Returns the times until the buckets are full.
local grace, most_counters, most_debt = 10000000, 64, 16
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local debts = {}
for index, key in ipairs(KEYS) do
  local at = (index - 1) * 5 + 1
  local counter = ARGV[1] .. ':' .. ARGV[at + 1]
  local acknowledged, total = tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3])
  local interval, capacity = tonumber(ARGV[at + 4]), tonumber(ARGV[at + 5])
  local known = redis.pcall('HMGET', key, 'f', counter)
  if known.err then
    redis.call('DEL', key)
    known = {}
  end
  -- A value that is not a number loses against the first argument.
  local full = math.max(now, tonumber(known[1] or nil) or 0)
  local last = math.max(acknowledged, tonumber(string.match(known[2] or '', '^%d+') or nil) or 0)
  full = full + math.max(total - last, 0) * interval
  full = math.min(full, now + most_debt * capacity)
  redis.call('HSET', key, 'f', string.format('%.3f', full), counter,
    string.format('%.0f@%.0f', math.max(total, last), now))
  if redis.call('HLEN', key) > most_counters + 1 then
    local fields, oldest, since = redis.call('HGETALL', key), nil, nil
    for field = 1, #fields, 2 do
      local reported = tonumber(string.match(fields[field + 1], '@(%d+)$') or nil) or 0
      if fields[field] ~= 'f' and (not since or reported < since) then
        oldest, since = fields[field], reported
      end
    end
    redis.call('HDEL', key, oldest)
  end
  redis.call('PEXPIRE', key, string.format('%.0f', (full - now + grace) / 1000))
  debts[index] = math.ceil(full - now)
end
return debts
