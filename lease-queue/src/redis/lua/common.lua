-- What every script of a queue begins with; how it is all laid out stands on the
-- page `docs/redis.md`.
--
-- Before this text stand the settings: the retentions of marks and of tombstones, in
-- microseconds, and the command that publishes.
--
-- KEYS[1]  the queue's birth marker, which begins all of its names, and is its channel
-- ARGV     the operation's arguments. Identities of items and owners are 32
--          hexadecimal digits; a lane is a letter, a colon and its name.
--
-- Returns an array of answers, each a number or an array. { -1, text } is an error, and
-- nothing was changed; { -2, text } is one after something was.
--
-- Numbers are never made text by '..', which would write 1.796e+15.

local MAX_TOKEN, MAX_CLOCK = 9007199254740991, 4503599627370496
-- A lane's record: 'Q1', its standing (g granted, s settled, r released, v revoked, n no
-- grant yet), mark, token, granted, expires; the owner, the item with its place, the
-- label.
local LAYOUT, SIZE = '<c2c1ddddc32c48', 115
local NOBODY, NOTHING = string.rep('0', 32), string.rep('0', 48)

local base = KEYS[1]
local wrote = false
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

local function digits(number) return string.format('%.0f', number) end
local function foreign(what)
  error('FOREIGN ' .. what .. ' of a queue is not what the queue wrote', 0)
end

-- Errors of the server are raised as text.
local function call(...)
  local reply = redis.pcall(...)
  if type(reply) == 'table' and reply.err then error(reply.err, 0) end
  return reply
end
local function write(...)
  local reply = call(...)
  wrote = true
  return reply
end

local function ready() return base .. ':ready' end
local function claimed() return base .. ':claimed' end
local function living() return base .. ':living' end
local function dead() return base .. ':dead' end
local function delayed() return base .. ':delayed' end
local function item_name(id) return base .. ':m:' .. id end
local function list_name(group) return base .. ':l:' .. group end
local function lane_name(lane) return base .. ':' .. lane end
local function owner_name(owner) return base .. ':o:' .. owner end
local function tomb_name(owner) return base .. ':t:' .. owner end
local function done_name(id) return base .. ':d:' .. id end
local function settled_name(id, owner, token)
  return base .. ':s:' .. id .. ':' .. owner .. ':' .. digits(token)
end
local function id_of(member) return string.sub(member, 17) end
local function group_of(lane)
  return string.sub(lane, 1, 2) == 'g:' and string.sub(lane, 3) or nil
end
local function is_lane(name) return string.find(name, '^[gik]:') == 1 end
local function is_key(lane) return string.sub(lane, 1, 2) == 'k:' end

local function ms(us) return digits(math.ceil(us / 1000) + 1) end

-- A lane's record, an empty one if there is none.
local function lane_from(lane, raw)
  local r = { lane = lane, standing = 'n', mark = 0, token = 0, granted = 0, expires = 0,
    owner = NOBODY, member = NOTHING, label = '', known = raw and true or false }
  if raw then
    if #raw < SIZE then foreign('the record of a lane') end
    local magic
    magic, r.standing, r.mark, r.token, r.granted, r.expires, r.owner, r.member =
      struct.unpack(LAYOUT, raw)
    if magic ~= 'Q1' or not (r.mark >= 1 and r.mark <= MAX_TOKEN and r.token >= 0
      and r.token <= r.mark and r.granted >= 0 and r.expires >= 0
      and r.expires < MAX_CLOCK * 2) then
      foreign('the record of a lane')
    end
    r.label = string.sub(raw, SIZE + 1)
  end
  r.blocks = now < r.expires and (r.standing == 'g' or r.standing == 'v')
  return r
end
local function lane_of(lane) return lane_from(lane, call('GET', lane_name(lane))) end

-- It is kept until the clock has passed the mark by the retention: whatever mark is
-- dropped is below now - retention ever after.
local function keep(r)
  local till = math.max(now, r.expires, r.mark) + marks
  write('SET', lane_name(r.lane), struct.pack(LAYOUT, 'Q1', r.standing, r.mark, r.token,
    r.granted, r.expires, r.owner, r.member) .. r.label, 'PX', ms(till - now))
end

-- Since when there is the queue, noted when it is new.
local function born()
  local marker = call('GET', base)
  if not marker then
    -- True whatever becomes of the rest.
    call('SET', base, 'Q1 ' .. digits(now))
    return now
  end
  local first = string.match(marker, '^Q1 (%d+)$')
  if not first then foreign('the birth marker') end
  return tonumber(first)
end

-- What is known of the mark of a lane without one: it was never used, or its mark was
-- dropped, and every mark that was ever dropped is below now - retention. None was in a
-- queue that is younger than that.
local function floor()
  local first = born()
  -- A queue from the future is as old as can be: the clock stepped back.
  if first <= now and now - first <= marks then return 0 end
  return math.max(0, now - marks)
end

-- The next token of a lane with this mark, above `after`; nil if they are used up.
local function token_above(mark, after)
  local new = math.max(math.min(now, MAX_CLOCK), mark + 1, after + 1)
  return new <= MAX_TOKEN and new or nil
end

-- The one lane of an owner who has one alone.
local function one_of(owner) return call('MGET', owner_name(owner))[1] end
-- Notes what of a lane's is an owner's, for as long as it may be: the lane itself, as
-- text, of an owner who has one; a set of them of an owner who has had more. `one` is
-- what `one_of` said, if it was asked.
local function own(owner, lane, ttl, one)
  local name = owner_name(owner)
  local needed = math.ceil(ttl / 1000) + 1000
  if not one then
    -- As a rule it is new.
    if call('SET', name, lane, 'PX', digits(needed), 'NX') then
      wrote = true
      return
    end
    one = one_of(owner)
  end
  if one and not is_lane(one) then foreign('what an owner has') end
  local left = call('PTTL', name)
  if not one then
    write('SADD', name, lane)
  elseif one ~= lane then
    write('DEL', name)
    write('SADD', name, one, lane)
  end
  if left < needed or one and one ~= lane then
    write('PEXPIRE', name, digits(math.max(left, needed)))
  end
end
-- Whoever abandons the owner looks at each lane: one too many does no harm.
local function disown(owner, lane, one)
  if one == lane then
    write('DEL', owner_name(owner))
  elseif not one and owner ~= NOBODY then
    redis.pcall('SREM', owner_name(owner), lane)
  end
end

-- Why this owner is refused: 'a' abandoned, 'r' revoked, or false.
local function tombstone(owner) return call('GET', tomb_name(owner)) end
local function bury_owner(owner, why, us)
  local left = call('PTTL', tomb_name(owner))
  write('SET', tomb_name(owner), why, 'PX', digits(math.max(left, math.ceil(us / 1000))))
end

-- An item as it stands, with its payload if that is asked for; raises an error if it is
-- not one.
local function item(id, payload)
  local f = call('HMGET', item_name(id), 'p', 't', 'v', 'a', 'g', 'u', 'd', 'e',
    payload or 'p')
  local m = { id = id, place = f[1], put = tonumber(f[2] or ''), visible = tonumber(f[3] or ''),
    attempts = tonumber(f[4] or ''), group = f[5] or nil, dedup = f[6] or nil,
    dead = f[7] or nil, error = f[8] or nil, body = f[9] }
  if not (m.place and #m.place == 16 and m.put and m.visible and m.attempts
    and m.put >= 0 and m.visible >= 0 and m.attempts >= 0 and m.attempts < 4294967296) then
    foreign('an item')
  end
  m.member = m.place .. id
  m.lane = m.group and 'g:' .. m.group or 'i:' .. id
  return m
end

-- The next place in the queue.
local function places(count)
  local last = redis.pcall('INCRBY', base .. ':n', digits(count))
  if type(last) == 'table' then
    if string.find(last.err, 'not an integer') then foreign('the counter') end
    error(last.err, 0)
  end
  wrote = true
  if not (last >= count and last < MAX_CLOCK) then foreign('the counter') end
  return last - count
end
local function place(number) return string.format('%016.0f', number) end

-- Puts an item at the end of its lane: `at` is its place, as text.
local function line_up(m)
  write('ZADD', living(), digits(m.put), m.member)
  if m.group and write('RPUSH', list_name(m.group), m.member) > 1 then return end
  write('ZADD', ready(), digits(m.visible), m.member)
end

-- Takes a lane's head out of it; whether there is another one now.
local function leave(m)
  write('ZREM', living(), m.member)
  if not m.group then return false end
  local list = list_name(m.group)
  write('LREM', list, '1', m.member)
  local head = call('LINDEX', list, '0')
  if not head then return false end
  local next = call('HGET', item_name(id_of(head)), 'v')
  local visible = tonumber(next or '') or now
  write('ZADD', ready(), digits(math.max(visible, now)), head)
  return true
end

-- Puts a lane's head, whose claim has ended, among what is ready.
local function back(member, visible, at)
  write('ZREM', claimed(), member)
  write('ZADD', ready(), digits(math.max(visible, at)), member)
end

-- Nothing is lost with it but a wake-up.
local function hint(lane)
  redis.pcall(publish, is_key(lane) and lane_name(lane) or base, '')
end

-- Runs it and gives its answers, or its error.
local function run(work)
  local fine, answer = pcall(work)
  if fine then return answer end
  if type(answer) == 'table' then answer = answer.err end
  return { wrote and -2 or -1, tostring(answer) }
end
