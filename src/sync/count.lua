-- Takes up what a node tells of the windows of its keys, and answers with what all nodes have told.
--
-- KEYS: one for each throttled key. ARGV: 8 for each of them, in order:
--   charge       requests let through since the last message
--   current      the count of this window as last known to the node, or "" if it knows none
--   before       the same of the window before
--   over         what this window has lost, because the one before was over, as the node knows it
--   age_us       the age of this window, as the node knows it
--   limit        requests in a window
--   window_us    its length
--   ttl_ms       the life of the record
-- Record: "<number of the window> <count> <count before> <over>". Windows begin at multiples of their length.
-- Answer for each key: "<count> <count before> <over> <age_us>".
local MOST = 1e12

local answers = {}
for i, key in ipairs(KEYS) do
  local a = (i - 1) * 8
  local charge = within(ARGV[a + 1], -MOST, MOST) or 0
  local taught, taught_before = within(ARGV[a + 2], 0, MOST), within(ARGV[a + 3], 0, MOST) or 0
  local taught_over, taught_age = within(ARGV[a + 4], 0, MOST) or 0, within(ARGV[a + 5], 0, 1e16) or 0
  local limit, window = within(ARGV[a + 6], 1, MOST) or 1, within(ARGV[a + 7], 1000, 1e16) or 1e6
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
  redis.call('SET', key, string.format('%.0f %.0f %.0f %.0f', number, count, before, over), 'PX', ARGV[a + 8])
  answers[i] = string.format('%.0f %.0f %.0f %.0f', count, before, over, age)
end
return answers
