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
--   wants        null, or for held requests:
--     run, number  of the node and of the message: one that comes twice is applied once
--     want         the number of slots
--     waited_s     how long the oldest of these requests has waited
--     half_trip_s  half of the round trip
--     back         slots that the node returns, as times from now
-- Record: "<tat_us> <demand> <slow demand> <at_us> <born_us> <before_us> <since_us> <returned_us> <debts_us> <holes_us>".
--   before, since    the TAT from before its birth, as nodes still know it, and what was charged since then
--   returned, debts  when the first node came back from a silence, and the debts of those that did
--   holes            returned slots in ascending order, with commas; without any, the field is left out
-- Each SET has a PX: no record is without an end.
-- Answer for each key, in JSON: ahead_s, the TAT less now; demand, slow_demand, age_s; with wants also grant:
--   holes        slots that another node returned; all times are from now
--   first_s      the first of the other slots, one request apart from each other, and
--   count        their number
--   refused      requests without a slot within the longest delay
local SLOW_US, MOST, NEVER = 5e6, 1e12, -1e16
-- A record of this age may be one that was forgotten; a node that knows it for so much longer knows more.
local YOUNG_US, LONGER_US = 2e6, 1e6
-- Nodes that come back within this time come back from the same silence.
local RETURN_US, AHEAD_US = 2e6, 10e6
local HOLES_MAX, ROUNDING = 16, 1e-6

-- The returned slots of a record.
local function holes_of(text)
  local holes = {}
  for hole in string.gmatch(text or '', '[^,]+') do
    if #holes < HOLES_MAX then holes[#holes + 1] = within(hole, 0, 1e17) end
  end
  return holes
end

-- The last grants to the nodes are in a hash beside the record: run -> "<number> <first_us> <count> <refused> <holes_us>".
local GRANTS_MAX, GRANT_KEPT_MS, GRANT_BYTES_MAX = 1000, 5000, 512

-- The grant of a message that came before, as it is now.
local function granted(grants, run, number, want)
  if redis.call('HSTRLEN', grants, run) > GRANT_BYTES_MAX then return nil end
  local known = redis.call('HGET', grants, run)
  local n, first, count, refused, holes =
    string.match(known or '', '^(%S+) (%S+) (%S+) (%S+) ?(%S*)$')
  first = within(first, -1e17, 1e17)
  count, refused, holes = within(count, 0, want), within(refused, 0, want), holes_of(holes)
  if n ~= number or not first or not count or not refused then return nil end
  count, refused = math.floor(count), math.floor(refused)
  if #holes + count + refused > want then return nil end
  local grant = { first_s = (first - now) / 1e6, count = count, refused = refused }
  for _, hole in ipairs(holes) do
    grant.holes = grant.holes or {}
    grant.holes[#grant.holes + 1] = (hole - now) / 1e6
  end
  return grant
end

local answers = {}
for i, key in ipairs(KEYS) do
  local a = cjson.decode(ARGV[i])
  local wants = type(a.wants) == 'table' and a.wants
  local grants, run, number, grant = key .. ':grants', nil, nil, nil
  if wants then
    run, number = string.format('%.0f', wants.run), string.format('%.0f', wants.number)
    own(grants, 'hash')
    grant = granted(grants, run, number, within(wants.want, 0, 1e6) or 0)
    if grant then a.charge, a.asked, a.asked_lately = 0, 0, 0 end
  end
  local charge = within(a.charge * us(a.slot_s), -MOST, MOST) or 0
  local asked, lately = within(a.asked, 0, MOST) or 0, within(a.asked_lately, 0, MOST) or 0
  local burst, cap = within(us(a.burst_s), 0, 1e16) or 0, within(us(a.cap_s) + AHEAD_US, 0, 1e16) or 0
  local taught, memory = within(us(a.restore_s), -1e16, cap), within(us(a.memory_s), 1, 1e9) or 1e6
  local tat, demand, slow, at, born, before, since = now - burst, 0, 0, now, now, NEVER, 0
  local returned, debts, holes = NEVER, 0, {}
  -- A value of another type is replaced.
  local record = record_of(key)
  if type(record) == 'string' then
    local pattern = '^(%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) ?(%S*)$'
    local x, y, z, w, b, f, s, r, d, h = string.match(record, pattern)
    x, y, z, w, b = within(x, -1e17, 1e17), within(y, 0, MOST), within(z, 0, MOST), within(w, 0, 1e17), within(b, 0, 1e17)
    f, s, r, d = within(f, NEVER, 1e17), within(s, -1e16, 1e16), within(r, NEVER, 1e17), within(d, 0, 1e16)
    if x and y and z and w and b and f and s and r and d then
      tat, demand, slow, at, born, before, since, returned, debts = x, y, z, w, math.min(b, w), f, s, r, d
      holes = holes_of(h)
      -- A new master's clock is behind: what is owed stays.
      if at > now then
        local back = at - now
        tat, born, before, returned, at = tat - back, born - back, before - back, returned - back, now
        for n = 1, #holes do holes[n] = holes[n] - back end
      end
    end
  end
  demand = demand * math.exp((at - now) / memory) + asked
  slow = slow * math.exp((at - now) / SLOW_US) + lately
  local earlier = tat
  if taught then
    -- Each node knows the TAT of another moment: what was charged since the birth is added to the latest.
    -- A node's knowledge from before a silence is out of date.
    local known = within(us(a.known_age_s), 0, 1e16) or 0
    if not a.returns and now - born <= YOUNG_US and known > now - born + LONGER_US then
      before = math.max(before, now + taught)
      tat = math.max(tat, before + since)
    end
    earlier = tat
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
  if wants and not grant then
    -- More than the longest debt is forgiven: held requests could not wait for it.
    tat = math.min(tat, math.max(earlier, now + cap - AHEAD_US))
    local slot, want = math.max(us(a.slot_s), 1), within(wants.want, 0, 1e6) or 0
    local half_trip = within(us(wants.half_trip_s), 0, 1e7) or 0
    for n = 1, math.min(#(wants.back or {}), HOLES_MAX) do
      local ahead = within(us(wants.back[n]), -1e16, 1e16) or 0
      if #holes < HOLES_MAX and ahead > 0 then holes[#holes + 1] = now + ahead else tat = tat - slot end
    end
    table.sort(holes)
    -- A slot that can no longer be used in time makes room for a later one.
    local left, given, given_us = {}, {}, {}
    for _, hole in ipairs(holes) do
      if hole < now + half_trip then
        tat = tat - slot
      elseif #given < want then
        given[#given + 1] = (hole - now) / 1e6
        given_us[#given_us + 1] = string.format('%.0f', hole)
      else
        left[#left + 1] = hole
      end
    end
    holes, want = left, want - #given
    tat = math.max(tat, now - burst)
    local waited = within(us(wants.waited_s), 0, 1e16) or 0
    local room = (now + cap - AHEAD_US - waited - half_trip - tat) / slot
    local count = math.min(math.max(math.floor(room + ROUNDING), 0), want)
    -- An empty list would be an object in JSON.
    grant = { holes = given[1] and given, first_s = (tat + slot - now) / 1e6, count = count, refused = want - count }
    tat, since = tat + count * slot, math.min(since + count * slot, 1e16)
    if now - returned <= RETURN_US then debts = math.min(debts + count * slot, 1e16) end
    if redis.call('HLEN', grants) > GRANTS_MAX then redis.call('DEL', grants) end
    local known = string.format('%s %.0f %.0f %.0f', number, tat - count * slot + slot, count, grant.refused)
    if given[1] then known = known .. ' ' .. table.concat(given_us, ',') end
    redis.call('HSET', grants, run, known)
    redis.call('PEXPIRE', grants, GRANT_KEPT_MS)
  end
  local format = '%.0f %.4f %.4f %.0f %.0f %.0f %.0f %.0f %.0f'
  local numbers = string.format(format, tat, demand, slow, now, born, before, since, returned, debts)
  for n = 1, #holes do holes[n] = string.format('%.0f', holes[n]) end
  if #holes > 0 then numbers = numbers .. ' ' .. table.concat(holes, ',') end
  redis.call('SET', key, numbers, 'PX', ms(a.kept_s))
  local ahead_s, age_s = (tat - now) / 1e6, (now - born) / 1e6
  local answer = { ahead_s = ahead_s, demand = demand, slow_demand = slow, age_s = age_s, grant = grant }
  answers[i] = cjson.encode(answer)
end
return answers
