-- Settles claims, each by itself. ARGV: for each a letter (E extend, C complete, R retry,
-- B bury), lane, item, owner, token, and two arguments: of E the TTL, of R the delay, both
-- in microseconds, with '0' or '1' for whether it counts and the error behind it; of B
-- the reason.
local function live(r, id, owner, token)
  return r.standing == 'g' and r.blocks and r.owner == owner and r.token == token
    and (is_key(r.lane) or id_of(r.member) == id)
end

-- What is said of a claim that is not live.
local function not_live(r, what, id, owner, token)
  local key = is_key(r.lane)
  local own = r.owner == owner and r.token == token and (key or id_of(r.member) == id)
  local done_owner, done_token = '', 0
  local before = own and r.standing == 's'
  if not key then
    local done = call('GET', done_name(id))
    if done then
      done_owner, done_token = string.sub(done, 1, 32), tonumber(string.sub(done, 33)) or 0
    end
    before = before or (done_owner == owner and done_token == token)
      or call('EXISTS', settled_name(id, owner, token)) == 1
  end
  if before then
    if what == 'E' then return { 0, 'r' } end
    return 2
  end
  if own then
    if r.standing == 'g' then return { 0, 'e' } end
    if r.standing == 'v' then return { 0, 'v' } end
    return { 0, 'r' }
  end
  local why = tombstone(owner)
  if why then return { 0, why == 'r' and 'v' or 'r' } end
  return { 0, math.max(r.token, done_token) > token and 't' or 'u' }
end

local tombs_ms = digits(math.ceil(tombs / 1000))

-- That what is written last can be written: asked once, since nobody comes between.
local looked = {}
local function look(command, name)
  if looked[name] then return end
  call(command, name)
  looked[name] = true
end

local function settle(what, lane, id, owner, token, first, second)
  local both = call('MGET', lane_name(lane), owner_name(owner))
  -- What is no text is asked for once more, to be refused.
  local r, one = lane_from(lane, both[1] or call('GET', lane_name(lane))), both[2]
  if not live(r, id, owner, token) then return not_live(r, what, id, owner, token) end
  local key = is_key(lane)
  if what == 'E' then
    local ttl = tonumber(first)
    if now + ttl > r.expires then
      r.expires = now + ttl
      keep(r)
      if not key then write('ZADD', claimed(), digits(r.expires), r.member) end
      own(owner, lane, ttl, one)
    end
    return 1
  end
  if key then
    r.standing, r.expires = 's', now
    keep(r)
    disown(owner, lane, one)
    hint(lane)
    return 1
  end
  local m = item(id)
  if m.member ~= r.member or m.lane ~= lane or m.dead then foreign('an item') end
  if m.group then call('LLEN', list_name(m.group)) end
  if m.group or what == 'R' then look('ZCARD', ready()) end
  look('ZCARD', living())
  -- First, since it may be written when the memory is full: work that is done makes room.
  write('ZREM', claimed(), m.member)
  local more, done = true, false
  if what == 'C' then
    write('SET', done_name(id), owner .. digits(token), 'PX', tombs_ms)
    if m.dedup then write('SET', base .. ':u:' .. m.dedup, id, 'PX', tombs_ms) end
    if m.group then
      write('DEL', item_name(id))
    else
      -- Its identity never comes back: nothing left to keep a mark for.
      done = true
      if one == lane then
        write('DEL', item_name(id), lane_name(lane), owner_name(owner))
      else
        write('DEL', item_name(id), lane_name(lane))
        disown(owner, lane, one)
      end
    end
    more = leave(m)
  else
    write('SET', settled_name(id, owner, token), '', 'PX', tombs_ms)
    if what == 'R' then
      local delay = tonumber(first)
      local attempts = m.attempts
      if string.sub(second, 1, 1) == '0' then attempts = math.max(0, attempts - 1) end
      write('HSET', item_name(id), 'v', digits(now + delay), 'a', digits(attempts))
      if #second > 1 then write('HSET', item_name(id), 'e', string.sub(second, 3)) end
      write('ZADD', ready(), digits(now + delay), m.member)
      if delay > 0 then
        write('ZADD', delayed(), digits(now + delay), m.member)
        write('ZREMRANGEBYSCORE', delayed(), '-inf', digits(now))
      end
    else
      write('HSET', item_name(id), 'd', first, 'e', first)
      more = leave(m)
      write('ZADD', dead(), digits(places(1) + 1), id)
    end
  end
  if not done then
    r.standing = 's'
    keep(r)
    disown(owner, lane, one)
  end
  if more then hint(lane) end
  return 1
end

local answers = {}
for at = 1, #ARGV, 7 do
  wrote = false
  answers[#answers + 1] = run(function()
    return settle(ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], tonumber(ARGV[at + 4]),
      ARGV[at + 5], ARGV[at + 6])
  end)
end
return answers
