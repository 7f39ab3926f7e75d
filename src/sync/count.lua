-- Takes up what a node tells of the windows of its keys, and answers with what all nodes have told.
--
-- KEYS: one for each throttled key. ARGV: a message for each of them, in JSON:
--   charge       requests let through since the last message
--   restore      the last answer to the node, as it would be now, or null if it knows none
--   limit        requests in a window
--   window_s     its length
--   kept_s       the life of the record
-- Record: "<number of the window> <count> <count before> <over>". Windows begin at multiples of their length.
-- Answer for each key, in JSON:
--   current      the count of this window
--   before       the same of the window before
--   over         what this window has lost, because the one before was over
--   age_s        the age of this window
local MOST = 1e12

local answers = {}
for i, key in ipairs(KEYS) do
  local a = cjson.decode(ARGV[i])
  local restore = a.restore ~= cjson.null and a.restore or {}
  local charge = within(a.charge, -MOST, MOST) or 0
  local taught, taught_before = within(restore.current, 0, MOST), within(restore.before, 0, MOST) or 0
  local taught_over, taught_age = within(restore.over, 0, MOST) or 0, within(us(restore.age_s), 0, 1e16) or 0
  local limit, window = within(a.limit, 1, MOST) or 1, within(us(a.window_s), 1000, 1e16) or 1e6
  local number = math.floor(now / window)
  local age = now - number * window
  local count, before, over = 0, 0, 0
  -- The loss of the next window.
  local function lost(count, over) return math.min(math.max(count + over - limit, 0), limit) end
  local record = record_of(key)
  if type(record) == 'string' then
    local n, c, b, o = string.match(record, '^(%S+) (%S+) (%S+) (%S+)$')
    n, c, b, o = within(n, 0, 1e17), within(c, 0, MOST), within(b, 0, MOST), within(o, 0, MOST)
    if n and c and b and o then
      -- A new master's clock may be behind: then the count stays.
      if n >= number then count, before, over = c, b, o end
      if n == number - 1 then before, over = c, lost(c, o) end
    end
  end
  if taught then
    -- A node that is one window behind knows the one before.
    if taught_age <= age + window / 2 then
      count, before, over = math.max(count, taught), math.max(before, taught_before), math.max(over, taught_over)
    else
      before, over = math.max(before, taught), math.max(over, lost(taught, taught_over))
    end
  end
  count = math.max(count + charge, 0)
  redis.call('SET', key, string.format('%.0f %.0f %.0f %.0f', number, count, before, over), 'PX', ms(a.kept_s))
  answers[i] = cjson.encode({ current = count, before = before, over = over, age_s = age / 1e6 })
end
return answers
