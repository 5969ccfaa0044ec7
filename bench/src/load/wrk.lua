-- What wrk cannot say on its command line, and its result on one line.
-- Arguments: how many requests go in one write; the path of each hundredth request, or "-"; the
-- milliseconds that a connection rests before a request.

function init(args)
   local pipelined, slow, rest = tonumber(args[1]), args[2], tonumber(args[3])
   if rest > 0 then
      delay = function() return rest end
   end
   if pipelined > 1 then
      local requests = string.rep(wrk.format(), pipelined)
      request = function() return requests end
   elseif slow ~= "-" then
      local usual, other, count = wrk.format(), wrk.format(nil, slow), 0
      request = function()
         count = count + 1
         return count % 100 == 0 and other or usual
      end
   end
end

function done(summary, latency)
   local errors = summary.errors
   io.write(string.format(
      "tally %d %d %d %d %d %d\n", summary.requests,
      errors.connect + errors.read + errors.write + errors.status + errors.timeout,
      summary.duration, latency:percentile(50), latency:percentile(99), latency:percentile(99.9)
   ))
end
