-- Takes up the heartbeat of a node, and answers with what all nodes have in common.
--
-- KEYS, in order:
--   nodes     a hash: run of a node -> "<moment in us> <its own words>"
--   secret    the key secret
--   crowded   a sorted set: crowded key -> moment in us
-- ARGV, in order:
--   run       the run of this node
--   words     its own words
--   secret    its key secret
--   present   how long a node counts without a heartbeat, in us
--   kept      how long the secret is kept without a heartbeat, in ms
--   crowded   the keys that are crowded here, any number of them
-- Answer: now in us, the key secret, the words of all nodes, the crowded keys.
local NODES_MAX, CROWDED_MAX, CROWDED_US = 1000, 10000, 2e6
-- No node gets longer values than nodes write: they are a stranger's. A node's words have four texts of 128 bytes.
local RUN_BYTES_MAX, WORDS_BYTES_MAX, SECRET_BYTES_MAX, KEY_BYTES_MAX = 64, 2048, 64, 16
local nodes, secret, crowded = KEYS[1], KEYS[2], KEYS[3]

own(nodes, 'hash')
own(secret, 'string')
own(crowded, 'zset')

if redis.call('HLEN', nodes) > NODES_MAX then redis.call('DEL', nodes) end
redis.call('HSET', nodes, ARGV[1], string.format('%.0f ', now) .. ARGV[2])
redis.call('PEXPIRE', nodes, ARGV[5])
redis.call('SET', secret, ARGV[3], 'NX', 'PX', ARGV[5])
redis.call('PEXPIRE', secret, ARGV[5])

local words = {}
for _, run in ipairs(redis.call('HKEYS', nodes)) do
  local is_long = #run > RUN_BYTES_MAX or redis.call('HSTRLEN', nodes, run) > WORDS_BYTES_MAX
  local at, own_words = string.match(is_long and '' or redis.call('HGET', nodes, run), '^(%d+) (.*)$')
  local age = at and now - tonumber(at)
  -- A moment in the future is one of another master, whose clock is ahead.
  if not age or age > tonumber(ARGV[4]) or age < -60e6 then
    redis.call('HDEL', nodes, run)
  else
    words[#words + 1] = own_words
  end
end

for i = 6, #ARGV do redis.call('ZADD', crowded, now, ARGV[i]) end
redis.call('ZREMRANGEBYSCORE', crowded, '-inf', now - CROWDED_US)
redis.call('ZREMRANGEBYRANK', crowded, 0, -CROWDED_MAX - 1)
redis.call('PEXPIRE', crowded, 10000)
local keys = {}
for _, key in ipairs(redis.call('ZRANGE', crowded, 0, -1)) do
  if #key > KEY_BYTES_MAX then redis.call('ZREM', crowded, key) else keys[#keys + 1] = key end
end
return { string.format('%.0f', now), redis.call('GETRANGE', secret, 0, SECRET_BYTES_MAX - 1), words, keys }
