-- Claims whatever is ready, for some owners in turn, each by itself. ARGV: for each its
-- owner, TTL in microseconds, label, how many.
local wanted = 0
for at = 4, #ARGV, 4 do wanted = wanted + tonumber(ARGV[at]) end

-- What somebody has spoiled, or what has no token left, is in nobody's way: so many of it.
local IN_THE_WAY = 32
-- What is ready and was not looked at yet; how much of what was is left where it is, and
-- how much was set aside.
local found, at, left, aside, whole = {}, 0, 0, 0, false
local spoiled, used_up = nil, false

-- The next that is ready, if there is one and not too much is in its way.
local function next_ready()
  at = at + 1
  if found[at] or whole or left + aside > IN_THE_WAY then return found[at] end
  local most = wanted + (left > 0 and IN_THE_WAY or 0)
  found = call('ZRANGEBYSCORE', ready(), '-inf', digits(now), 'LIMIT', digits(left),
    digits(most))
  at, whole = 1, #found < most
  return found[1]
end

-- An item that is ready, its lane, and its token, if there is one left.
local function look(member)
  local m = item(id_of(member), 'b')
  local r = lane_of(m.lane)
  if m.member ~= member or m.dead or r.blocks then foreign('the place of an item') end
  if not m.body then foreign('an item') end
  return m, r, token_above(r.mark, 0)
end

local function grant(m, r, token, owner, ttl, label)
  local last = (r.standing == 'g' or r.standing == 'v') and r.owner
  r.standing, r.mark, r.token, r.granted, r.expires = 'g', token, token, now, now + ttl
  r.owner, r.member, r.label = owner, m.member, label
  -- First, so that who abandons the owner finds all of it, wherever this ends.
  own(owner, m.lane, ttl)
  keep(r)
  write('ZADD', claimed(), digits(r.expires), m.member)
  write('ZREM', ready(), m.member)
  write('HSET', item_name(m.id), 'a', digits(m.attempts + 1))
  if last then disown(last, m.lane, one_of(last)) end
  return { m.id, m.group or '', token, m.attempts + 1, math.max(0, now - m.put), m.body }
end

local function claim(owner, ttl, label, most)
  local why = tombstone(owner)
  if why then return { why == 'r' and 4 or 3 } end
  local items = { 1 }
  while #items <= most do
    local member = next_ready()
    if not member then break end
    local fine, m, r, token = pcall(look, member)
    if not fine then
      -- Of the server's own, such as a full memory: the next would end alike.
      if not string.find(tostring(m), 'FOREIGN') and not string.find(tostring(m), 'WRONGTYPE') then
        error(m, 0)
      end
      spoiled, left = m, left + 1
    elseif not token then
      -- Whose tokens are used up is in nobody's way either.
      write('ZADD', ready(), digits(now + 10000000), member)
      aside, used_up = aside + 1, true
    else
      items[#items + 1] = grant(m, r, token, owner, ttl, label)
    end
  end
  if #items > 1 then return items end
  if used_up then
    -- To the first alone, as if the others had come later.
    used_up = false
    return { 6 }
  end
  if spoiled then error(spoiled, 0) end
  -- Nothing else to do: those whose delay is over need not be told apart any more.
  call('ZREMRANGEBYSCORE', delayed(), '-inf', digits(now))
  local next = -1
  for _, set in ipairs({ ready(), claimed() }) do
    local first = call('ZRANGE', set, '0', '0', 'WITHSCORES')
    if first[2] then
      local after = math.max(0, tonumber(first[2]) - now)
      if next < 0 or after < next then next = after end
    end
  end
  return { 0, next }
end

-- Claims whose time is over are ready since then.
local trouble = run(function()
  local over = call('ZRANGEBYSCORE', claimed(), '-inf', digits(now), 'WITHSCORES', 'LIMIT', '0',
    digits(wanted))
  for n = 1, #over, 2 do
    write('ZADD', ready(), over[n + 1], over[n])
    write('ZREM', claimed(), over[n])
  end
end)
local answers = {}
for n = 1, #ARGV, 4 do
  wrote = false
  answers[#answers + 1] = trouble or run(function()
    return claim(ARGV[n], tonumber(ARGV[n + 1]), ARGV[n + 2], tonumber(ARGV[n + 3]))
  end)
end
return answers
