-- Takes up the changes of blocks from a node, and answers with those of the others.
--
-- KEYS, in order:
--   state     a hash: epoch -> drawn when the store began, seq -> the number of the last change
--   blocks    a sorted set: target of a block by an operator -> its end in ms
--   keys      the same for keys: clients earn as many of them as they like, and take no room of operators
--   changes   a stream of the last changes: <seq>-0 -> target, end in ms or 0
-- ARGV, in order: the epoch and the last change that the node knows, an epoch to begin with, and for each change:
--   target    the text of the requests that are blocked
--   rest_ms   how long they are blocked; negative: no longer
--   taught    1: the node only fears that the store has forgotten it
-- Answer: the epoch, the number of the last change, the kind of the list, the list, the changes without room.
-- The list has targets, each with its rest in ms or -1. Changes are counted from 0; no node learns of one without room.
--   news      the changes since the one that the node knows
--   all       all blocks in force: the changes in between are no longer kept one by one
--   lost      all blocks in force, but the store has forgotten some that the node may know
local CHANGES_MAX, OPERATORS_MAX, KEYS_MAX, KEPT_MS, REST_MS = 1000, 10000, 20000, 86400000, 366 * 86400000
-- No node gets longer values than nodes write: they are a stranger's. The longest target escapes each byte of eight
-- values; the longest list is that of a stranger who has written many of them.
local STATE_BYTES_MAX, TARGET_BYTES_MAX, LIST_BYTES_MAX = 32, 8720, 10e6
local state, blocks, keys, changes = KEYS[1], KEYS[2], KEYS[3], KEYS[4]

own(state, 'hash')
own(blocks, 'zset')
own(keys, 'zset')
own(changes, 'stream')

local now_ms = math.floor(now / 1000)
local function known(field)
  return redis.call('HSTRLEN', state, field) <= STATE_BYTES_MAX and redis.call('HGET', state, field)
end
local epoch, seq = known('epoch'), tonumber(known('seq') or '')
if not epoch or not seq or seq ~= seq or seq < 0 or seq > 1e15 then
  epoch, seq = ARGV[3], 0
  redis.call('DEL', changes)
end

-- The news for the node, before its own changes.
local list, kind = {}, 'news'
local cursor = tonumber(ARGV[2]) or 0
local has_lost = ARGV[1] ~= epoch or cursor > seq
if has_lost or seq - cursor > redis.call('XLEN', changes) then
  kind = has_lost and 'lost' or 'all'
  local bytes = 0
  for _, room in ipairs({ { blocks, OPERATORS_MAX }, { keys, KEYS_MAX } }) do
    redis.call('ZREMRANGEBYSCORE', room[1], '-inf', now_ms)
    local all = redis.call('ZRANGE', room[1], 0, room[2] - 1, 'WITHSCORES')
    for i = 1, #all, 2 do
      if #all[i] > TARGET_BYTES_MAX then
        redis.call('ZREM', room[1], all[i])
      elseif bytes + #all[i] > LIST_BYTES_MAX then
        -- No block ends for being left out.
        kind = 'lost'
      else
        bytes = bytes + #all[i]
        list[#list + 1] = all[i]
        list[#list + 1] = string.format('%.0f', math.min(tonumber(all[i + 1]) - now_ms, REST_MS))
      end
    end
  end
elseif cursor < seq then
  local first, last = string.format('%.0f-0', cursor + 1), string.format('%.0f-0', seq)
  for _, change in ipairs(redis.call('XRANGE', changes, first, last, 'COUNT', CHANGES_MAX)) do
    local target, ends = change[2][2], tonumber(change[2][4]) or 0
    if #target <= TARGET_BYTES_MAX then
      list[#list + 1] = target
      list[#list + 1] = string.format('%.0f', ends > now_ms and math.min(ends - now_ms, REST_MS) or -1)
    end
  end
end

-- Whether there is room for one more; blocks that are over make room.
local function has_room(room, most)
  if redis.call('ZCARD', room) < most then return true end
  redis.call('ZREMRANGEBYSCORE', room, '-inf', now_ms)
  return redis.call('ZCARD', room) < most
end

local refused = {}
for i = 4, #ARGV, 3 do
  local target, rest, taught = ARGV[i], tonumber(ARGV[i + 1]) or -1, ARGV[i + 2] == '1'
  local room, most = blocks, OPERATORS_MAX
  if string.sub(target, 1, 4) == 'key=' then room, most = keys, KEYS_MAX end
  local ends = rest >= 0 and now_ms + math.min(rest, REST_MS) or 0
  local before = tonumber(redis.call('ZSCORE', room, target) or 0)
  -- A node's clock and the way here make a taught end a little later or earlier.
  if not taught or ends > before + 1000 then
    if ends > 0 and before == 0 and not has_room(room, most) then
      refused[#refused + 1] = (i - 4) / 3
    else
      if ends == 0 then redis.call('ZREM', room, target) else redis.call('ZADD', room, ends, target) end
      seq = seq + 1
      local id, last = string.format('%.0f-0', seq), string.format('%.0f', ends)
      local added = redis.pcall('XADD', changes, 'MAXLEN', CHANGES_MAX, id, 't', target, 'u', last)
      if type(added) == 'table' and added.err then
        -- The stream is older than the state: it begins anew, and all nodes read the whole list.
        redis.call('DEL', changes)
      end
    end
  end
end
redis.call('HSET', state, 'epoch', epoch, 'seq', string.format('%.0f', seq))
redis.call('PEXPIRE', state, KEPT_MS)
redis.call('PEXPIRE', changes, KEPT_MS)
for _, room in ipairs(#ARGV > 3 and { blocks, keys } or {}) do
  local last = redis.call('ZREVRANGE', room, 0, 0, 'WITHSCORES')
  if last[2] then redis.call('PEXPIREAT', room, string.format('%.0f', math.min(tonumber(last[2]), now_ms + REST_MS) + 60000)) end
end
return { epoch, string.format('%.0f', seq), kind, list, refused }
