-- Those who wait for a key, in line. Two names, while there is a line:
--   p:KEY  a hash: of each owner its place's number, since when, and label; 'n' the last
--          number
--   w:KEY  a sorted set: 'j' and the owner by that number, unless it has missed its turn
--          since it last asked; 'u' and the owner by when the place ends, which is far
--          above all numbers
-- It is in nobody's log and at no replica: a line that is lost is taken up anew, and no
-- answer waits for a disk because of it. What cannot be written costs a place and no more.
local LAST = 1099511627776

local function place_name(key) return base .. ':p:' .. key end
local function line_name(key) return base .. ':w:' .. key end

-- Changes a line, by commands of which none matters but for its place in it.
local function unlogged(change)
  redis.set_repl(redis.REPL_NONE)
  local fine, err = pcall(change)
  redis.set_repl(redis.REPL_ALL)
  if not fine then error(err, 0) end
end

local function leave_line(key, owner)
  redis.pcall('ZREM', line_name(key), 'j' .. owner, 'u' .. owner)
  redis.pcall('HDEL', place_name(key), owner)
  if redis.pcall('ZCARD', line_name(key)) == 0 then
    redis.pcall('DEL', line_name(key), place_name(key))
  end
end

-- Those whose time is over, and those of a clock that has stepped back since.
local function fade(key)
  local line = line_name(key)
  local over = { { digits(LAST), digits(now) }, { '(' .. digits(now + MOST_PLACE), '+inf' } }
  for _, range in ipairs(over) do
    for _, member in ipairs(call('ZRANGEBYSCORE', line, range[1], range[2])) do
      leave_line(key, string.sub(member, 2))
    end
  end
end

local function number_of(key, owner)
  local own = call('HGET', place_name(key), owner)
  return own and tonumber(string.match(own, '^(%d+):') or '')
end

-- Takes a place for so many microseconds, or makes the owner's own last longer.
local function wait_in_line(key, owner, label, lasts)
  unlogged(function()
    local line, places = line_name(key), place_name(key)
    if call('EXISTS', places) == 1 then fade(key) end
    local number = number_of(key, owner)
    if not number then
      number = (tonumber(call('HGET', places, 'n') or '0') or 0) + 1
      redis.pcall('HSET', places, 'n', digits(number), owner,
        digits(number) .. ':' .. digits(now) .. ':' .. label)
    end
    redis.pcall('ZADD', line, digits(number), 'j' .. owner)
    redis.pcall('ZADD', line, digits(now + lasts), 'u' .. owner)
    local ms_left = ms(MOST_PLACE)
    redis.pcall('PEXPIRE', line, ms_left)
    redis.pcall('PEXPIRE', places, ms_left)
  end)
end

-- Of a key that has been free since `free`: how many are ahead of the owner and when its
-- turn comes, how long the first one has waited, and its label; nil if it is its turn.
-- Whoever does not wait (`lasts` is 0) comes last. The second answer is whether there is
-- a line at all.
local function out_of_turn(key, owner, label, lasts, free)
  if call('EXISTS', place_name(key)) == 0 then return nil, false end
  unlogged(function() fade(key) end)
  local line, places = line_name(key), place_name(key)
  local number = number_of(key, owner)
  local till = number and '(' .. digits(number) or '(' .. digits(LAST)
  local ahead = call('ZCOUNT', line, '-inf', till)
  local left = ahead * TURN - math.max(0, now - free)
  if ahead == 0 or left <= 0 then return nil, true end
  if lasts > 0 then
    wait_in_line(key, owner, label, lasts)
    return { ahead, left }, true
  end
  local first = call('ZRANGE', line, '0', '0')[1]
  local of = first and call('HGET', places, string.sub(first, 2)) or ''
  local since, words = string.match(of or '', '^%d+:(%d+):(.*)$')
  return { ahead, left, math.max(0, now - (tonumber(since or '') or now)), words or '' }, true
end

-- Its owner is granted the key, out of its place or without one: whoever was ahead has
-- missed its turn.
local function is_served(key, owner)
  unlogged(function()
    local number, line = number_of(key, owner) or LAST, line_name(key)
    for _, member in ipairs(call('ZRANGEBYSCORE', line, '-inf', '(' .. digits(number))) do
      redis.pcall('ZREM', line, member)
    end
    leave_line(key, owner)
  end)
end
