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
local nodes, secret, crowded = KEYS[1], KEYS[2], KEYS[3]

own(nodes, 'hash')
own(secret, 'string')
own(crowded, 'zset')

if redis.call('HLEN', nodes) > NODES_MAX then redis.call('DEL', nodes) end
redis.call('HSET', nodes, ARGV[1], string.format('%.0f ', now) .. ARGV[2])
redis.call('PEXPIRE', nodes, ARGV[5])
redis.call('SET', secret, ARGV[3], 'NX', 'PX', ARGV[5])
redis.call('PEXPIRE', secret, ARGV[5])

local words, fields = {}, redis.call('HGETALL', nodes)
for i = 1, #fields, 2 do
  local at, own_words = string.match(fields[i + 1], '^(%d+) (.*)$')
  local age = at and now - tonumber(at)
  -- A moment in the future is one of another master, whose clock is ahead.
  if not age or age > tonumber(ARGV[4]) or age < -60e6 then
    redis.call('HDEL', nodes, fields[i])
  else
    words[#words + 1] = own_words
  end
end

for i = 6, #ARGV do redis.call('ZADD', crowded, now, ARGV[i]) end
redis.call('ZREMRANGEBYSCORE', crowded, '-inf', now - CROWDED_US)
redis.call('ZREMRANGEBYRANK', crowded, 0, -CROWDED_MAX - 1)
redis.call('PEXPIRE', crowded, 10000)
return { string.format('%.0f', now), redis.call('GET', secret), words, redis.call('ZRANGE', crowded, 0, -1) }
