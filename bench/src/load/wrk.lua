-- Options that wrk has no command line flags for, and the result in one line.
-- Arguments: the number of requests per write; the path of each hundredth request, or "-"; the pause
-- of a connection before each request in milliseconds; the number of requests that differ in query,
-- referrer and cookie.

function init(args)
   local pipelined, slow, pause, varied = tonumber(args[1]), args[2], tonumber(args[3]), tonumber(args[4])
   if pause > 0 then
      delay = function() return pause end
   end
   if pipelined > 1 then
      local requests = string.rep(wrk.format(), pipelined)
      request = function() return requests end
   elseif slow ~= "-" then
      local regular, other, count = wrk.format(), wrk.format(nil, slow), 0
      request = function()
         count = count + 1
         return count % 100 == 0 and other or regular
      end
   elseif varied > 1 then
      local requests, count = {}, 0
      for number = 1, varied do
         -- Spreads the digits of consecutive numbers.
         local id = string.format("%08x", number * 2654435761 % 4294967296)
         wrk.headers["Referer"] = "http://localhost/list?page=" .. id
         wrk.headers["Cookie"] = "session=" .. id .. "; theme=dark"
         requests[number] = wrk.format(nil, wrk.path .. "?id=" .. id)
      end
      request = function()
         count = count % varied + 1
         return requests[count]
      end
   end
end

function done(summary, latency)
   local errors = summary.errors
   io.write(string.format(
      "result %d %d %d %d %d %d\n", summary.requests,
      errors.connect + errors.read + errors.write + errors.status + errors.timeout,
      summary.duration, latency:percentile(50), latency:percentile(99), latency:percentile(99.9)
   ))
end
