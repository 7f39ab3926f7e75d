-- Hands out parts of the quotas of keys, and takes back what is not used.
--
-- KEYS: one for each throttled key. ARGV: 9 for each of them, in order:
--   want         requests wanted; negative: given back
--   asked        requests asked about since the last message
--   given        what all nodes have been given in this window, as last known to the node, or "" if it knows none
--   rest_us      the time to the end of that window
--   limit        requests in a window
--   kept_back    requests that nodes may let through on credit
--   window_us    the length of a window
--   age_us       the age of the window, a period of the calendar; "": it begins with the first message
--   ttl_ms       the life of the record
-- Record: "<begin_us> <given> <demand> <at_us>". A window begins with the first message after the last one.
-- Answer for each key: "<granted> <given> <rest_us>".
local MOST, MEMORY_US, SCARCE = 1e12, 1e6, 0.1

local answers = {}
for i, key in ipairs(KEYS) do
  local a = (i - 1) * 9
  local want, asked = within(ARGV[a + 1], -MOST, MOST) or 0, within(ARGV[a + 2], 0, MOST) or 0
  local taught, rest = within(ARGV[a + 3], 0, MOST), within(ARGV[a + 4], -1e16, 1e16) or 0
  local limit, kept_back = within(ARGV[a + 5], 0, MOST) or 0, within(ARGV[a + 6], 0, MOST) or 0
  local window = within(ARGV[a + 7], 1000, 1e16) or 1e6
  local age = within(ARGV[a + 8], 0, 1e16)
  local begun, given, demand, at = now, 0, 0, now
  local record = record_of(key)
  if type(record) == 'string' then
    local b, g, d, t = string.match(record, '^(%S+) (%S+) (%S+) (%S+)$')
    b, g, d, t = within(b, 0, 1e17), within(g, 0, limit), within(d, 0, MOST), within(t, 0, 1e17)
    if b and g and d and t then
      -- A new master's clock is behind: the window goes on.
      if t > now then b, t = b - (t - now), now end
      begun, given, demand, at = math.min(b, now), g, d, t
    end
  end
  if age then
    -- The clocks of nodes differ a little; the next period is a whole one later.
    local start = now - age
    if given == 0 or start > begun + window / 2 then begun, given = start, 0 end
  elseif now >= begun + window then
    begun, given = now, 0
  end
  if taught and given == 0 and taught > 0 and rest >= 0 and rest <= window then
    begun, given = now + rest - window, math.min(taught, limit)
  end
  demand = demand * math.exp((at - now) / MEMORY_US) + asked
  local left = math.max(limit - kept_back - given, 0)
  local granted = math.floor(math.min(math.max(want, -given), left))
  if granted > 0 and left < SCARCE * limit then
    local share = math.min(asked / math.max(demand, 1e-9), 1)
    granted = math.floor(math.min(granted, math.max(0.5 * left * share, 1), left))
  end
  given = given + granted
  redis.call('SET', key, string.format('%.0f %.0f %.4f %.0f', begun, given, demand, now), 'PX', ARGV[a + 9])
  local rest = age and window - age or begun + window - now
  answers[i] = string.format('%.0f %.0f %.0f', granted, given, rest)
end
return answers
