-- Claims whatever is ready. ARGV: owner, TTL in microseconds, label, how many.
return { run(function()
  local owner, ttl, label, most = ARGV[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])
  local why = tombstone(owner)
  if why then return { why == 'r' and 4 or 3 } end

  -- Claims whose time is over are ready since then.
  local over = call('ZRANGEBYSCORE', claimed(), '-inf', digits(now), 'WITHSCORES', 'LIMIT', '0',
    digits(most))
  for at = 1, #over, 2 do
    write('ZADD', ready(), over[at + 1], over[at])
    write('ZREM', claimed(), over[at])
  end
  wrote = false

  -- A few more than are wanted: what somebody has spoiled is in nobody's way.
  local found = call('ZRANGEBYSCORE', ready(), '-inf', digits(now), 'LIMIT', '0',
    digits(most + 32))
  local chosen, lanes, known, spoiled, used_up = {}, {}, {}, nil, {}
  for _, member in ipairs(found) do
    if #lanes == most then break end
    local id = id_of(member)
    local fine, err = pcall(function()
      local m = item(id, 'b')
      local r = lane_of(m.lane)
      if m.member ~= member or m.dead or r.blocks or known[m.lane] then
        foreign('the place of an item')
      end
      if not m.body then foreign('an item') end
      local token = token_above(r.mark, 0)
      if not token then
        used_up[#used_up + 1] = member
        return
      end
      known[m.lane] = true
      lanes[#lanes + 1] = m.lane
      chosen[#chosen + 1] = { m, r, token }
    end)
    if not fine then
      -- Of the server's own, such as a full memory: the next would end alike.
      if not string.find(tostring(err), 'FOREIGN') and not string.find(tostring(err), 'WRONGTYPE') then
        error(err, 0)
      end
      spoiled = err
    end
  end
  -- Whose tokens are used up is in nobody's way either.
  for _, member in ipairs(used_up) do
    write('ZADD', ready(), digits(now + 10000000), member)
  end
  if #lanes > 0 then
    -- First, so that who abandons the owner finds all of it, wherever this ends.
    own(owner, lanes, ttl)
    local items = { 1 }
    for _, one in ipairs(chosen) do
      local m, r, token = one[1], one[2], one[3]
      local last = (r.standing == 'g' or r.standing == 'v') and r.owner
      r.standing, r.mark, r.token, r.granted, r.expires = 'g', token, token, now, now + ttl
      r.owner, r.member, r.label = owner, m.member, label
      keep(r)
      write('ZADD', claimed(), digits(r.expires), m.member)
      write('ZREM', ready(), m.member)
      write('HSET', item_name(m.id), 'a', digits(m.attempts + 1))
      if last then disown(last, m.lane) end
      items[#items + 1] = { m.id, m.group or '', token, m.attempts + 1,
        math.max(0, now - m.put), m.body }
    end
    return items
  end
  if #used_up > 0 then return { 6 } end
  if spoiled then error(spoiled, 0) end
  -- Nothing else to do: those whose delay is over need not be told apart any more.
  call('ZREMRANGEBYSCORE', delayed(), '-inf', digits(now))
  local next = -1
  for _, set in ipairs({ ready(), claimed() }) do
    local first = call('ZRANGE', set, '0', '0', 'WITHSCORES')
    if first[2] then
      local left = math.max(0, tonumber(first[2]) - now)
      if next < 0 or left < next then next = left end
    end
  end
  return { 0, next }
end) }
