-- Hands out parts of the quotas of keys, and takes back what is not used.
--
-- KEYS: one for each throttled key. ARGV: a message for each of them, in JSON:
--   want         requests wanted; negative: given back
--   asked        requests asked about since the last message
--   restore      what all nodes have been given in this window, as last known to the node, and the time to its end in
--                seconds; or null if it knows none
--   limit        requests in a window
--   kept_back    requests that nodes may let through on credit
--   window_s     the length of a window
--   age_s        the age of the window, a period of the calendar; null: it begins with the first message
--   kept_s       the life of the record
-- Record: "<begin_us> <given> <demand> <at_us>". A window begins with the first message after the last one.
-- Answer for each key, in JSON: granted, given, rest_s.
local MOST, MEMORY_US, SCARCE = 1e12, 1e6, 0.1

local answers = {}
for i, key in ipairs(KEYS) do
  local a = cjson.decode(ARGV[i])
  local restore = a.restore ~= cjson.null and a.restore or {}
  local want, asked = within(a.want, -MOST, MOST) or 0, within(a.asked, 0, MOST) or 0
  local taught, rest = within(restore[1], 0, MOST), within(us(restore[2]), -1e16, 1e16) or 0
  local limit, kept_back = within(a.limit, 0, MOST) or 0, within(a.kept_back, 0, MOST) or 0
  local window = within(us(a.window_s), 1000, 1e16) or 1e6
  local age = within(us(a.age_s), 0, 1e16)
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
  redis.call('SET', key, string.format('%.0f %.0f %.4f %.0f', begun, given, demand, now), 'PX', ms(a.kept_s))
  local rest = age and window - age or begun + window - now
  answers[i] = cjson.encode({ granted = granted, given = given, rest_s = rest / 1e6 })
end
return answers
