-- The beginning of every script: values that a stranger may have written, and the moment in us.

-- A number within bounds, whatever a stranger has written.
local function within(text, low, high)
  local x = tonumber(text)
  if not x or x ~= x then return nil end
  return math.min(math.max(x, low), high)
end

-- A time of a message in us. Without one it is not a number, and `within` has no value for it.
local function us(seconds) return (tonumber(seconds) or 0 / 0) * 1e6 end

-- The life of a record, for SET.
local function ms(seconds) return string.format('%.0f', seconds * 1e3) end

-- A record is 444 bytes at most, with 16 returned slots. A longer value is a stranger's, and is not read.
local RECORD_BYTES_MAX = 512
local function record_of(key)
  local length = redis.pcall('STRLEN', key)
  return type(length) == 'number' and length <= RECORD_BYTES_MAX and redis.call('GET', key)
end

-- A value of another type, which a stranger has written, is replaced.
local function own(key, kind)
  local found = redis.call('TYPE', key).ok
  if found ~= kind and found ~= 'none' then redis.call('DEL', key) end
end

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1e6 + tonumber(time[2])
