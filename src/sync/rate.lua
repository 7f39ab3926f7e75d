-- Takes up what a node tells of its keys, and answers with what all nodes have told.
--
-- KEYS: one for each throttled key. ARGV: a message for each of them, in JSON:
--   charge       requests let through since the last message
--   asked        requests asked about since then
--   asked_lately the same, but no more than a sum of the last 5 seconds would hold
--   slot_s       the time of one request
--   burst_s      the time of a full burst
--   cap_s        how far ahead the theoretical arrival time (TAT) may lie, without what nodes charge in arrears
--   restore_s    the TAT less now, as last known to the node, or null if it knows none
--   memory_s     the memory of the demand
--   kept_s       the life of the record
--   known_age_s  the age of the record, as last known to the node
--   returns      the store was silent until now, and the charge is the debt that the node has made meanwhile
-- Record: "<tat_us> <demand> <slow demand> <at_us> <born_us> <before_us> <since_us> <returned_us> <debts_us>".
--   before, since    the TAT from before its birth, as nodes still know it, and what was charged since then
--   returned, debts  when the first node came back from a silence, and the debts of those that did
-- Each SET has a PX: no record is without an end.
-- Answer for each key, in JSON: ahead_s, the TAT less now; demand, slow_demand, age_s.
local SLOW_US, MOST, NEVER = 5e6, 1e12, -1e16
-- A record of this age may be one that was forgotten; a node that knows it for so much longer knows more.
local YOUNG_US, LONGER_US = 2e6, 1e6
-- Nodes that come back within this time come back from the same silence.
local RETURN_US, AHEAD_US = 2e6, 10e6

local answers = {}
for i, key in ipairs(KEYS) do
  local a = cjson.decode(ARGV[i])
  local charge = within(a.charge * us(a.slot_s), -MOST, MOST) or 0
  local asked, lately = within(a.asked, 0, MOST) or 0, within(a.asked_lately, 0, MOST) or 0
  local burst, cap = within(us(a.burst_s), 0, 1e16) or 0, within(us(a.cap_s) + AHEAD_US, 0, 1e16) or 0
  local taught, memory = within(us(a.restore_s), -1e16, cap), within(us(a.memory_s), 1, 1e9) or 1e6
  local tat, demand, slow, at, born, before, since = now - burst, 0, 0, now, now, NEVER, 0
  local returned, debts = NEVER, 0
  -- A value of another type is replaced.
  local record = record_of(key)
  if type(record) == 'string' then
    local pattern = '^(%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+)$'
    local x, y, z, w, b, f, s, r, d = string.match(record, pattern)
    x, y, z, w, b = within(x, -1e17, 1e17), within(y, 0, MOST), within(z, 0, MOST), within(w, 0, 1e17), within(b, 0, 1e17)
    f, s, r, d = within(f, NEVER, 1e17), within(s, -1e16, 1e16), within(r, NEVER, 1e17), within(d, 0, 1e16)
    if x and y and z and w and b and f and s and r and d then
      tat, demand, slow, at, born, before, since, returned, debts = x, y, z, w, math.min(b, w), f, s, r, d
      -- A new master's clock is behind: what is owed stays.
      if at > now then
        local back = at - now
        tat, born, before, returned, at = tat - back, born - back, before - back, returned - back, now
      end
    end
  end
  demand = demand * math.exp((at - now) / memory) + asked
  slow = slow * math.exp((at - now) / SLOW_US) + lately
  if taught then
    -- Each node knows the TAT of another moment: what was charged since the birth is added to the latest.
    -- A node's knowledge from before a silence is out of date.
    local known = within(us(a.known_age_s), 0, 1e16) or 0
    if not a.returns and now - born <= YOUNG_US and known > now - born + LONGER_US then
      before = math.max(before, now + taught)
      tat = math.max(tat, before + since)
    end
    tat = math.max(tat, now + taught)
  end
  tat = math.max(math.min(tat, now + cap), now - burst)
  if a.returns then
    -- They come back one after the other. Meanwhile all of them pay off the debts of all, and make new ones.
    if now - returned > RETURN_US then returned, debts = now, 0 end
    debts = math.min(math.max(debts + charge, 0), 1e16)
    tat = math.max(tat, now + math.min(debts, cap - AHEAD_US))
  else
    tat = tat + charge
    since = math.min(since + charge, 1e16)
  end
  local format = '%.0f %.4f %.4f %.0f %.0f %.0f %.0f %.0f %.0f'
  local numbers = string.format(format, tat, demand, slow, now, born, before, since, returned, debts)
  redis.call('SET', key, numbers, 'PX', ms(a.kept_s))
  local ahead_s, age_s = (tat - now) / 1e6, (now - born) / 1e6
  answers[i] = cjson.encode({ ahead_s = ahead_s, demand = demand, slow_demand = slow, age_s = age_s })
end
return answers
