-- Gives an acquisition up. ARGV: owner, and '' or the one lane that is meant, a key's.
return { run(function()
  local owner, only = ARGV[1], ARGV[2]
  local lanes, index = { only }, {}
  local alone = one_of(owner)
  if only == '' then
    -- What somebody else wrote there hides what the owner has.
    if alone and not is_lane(alone) then foreign('what an owner has') end
    lanes = alone and { alone } or call('SMEMBERS', owner_name(owner))
    -- In that order as long as nobody else gives anything a score.
    if call('ZCOUNT', owners, '0', '0') ~= call('ZCARD', owners) then
      foreign('what owners have')
    end
    index = call('ZRANGEBYLEX', owners, '[' .. owner, '(' .. owner .. '\255')
    for _, member in ipairs(index) do
      local lane = string.sub(member, 33)
      if not string.find(lane, '^[gi]:') then foreign('what an owner has') end
      add(lanes, lane)
    end
  end
  -- Whoever gives up makes room for those behind it.
  local left = false
  if only ~= '' then
    local key = string.sub(only, 3)
    if call('EXISTS', place_name(key)) == 1 and call('HGET', place_name(key), owner) then
      unlogged(function() leave_line(key, owner) end)
      left = true
    end
  end
  -- All of it is read before anything is written.
  local keys, items = {}, {}
  for _, lane in ipairs(lanes) do
    local r = lane_of(lane)
    if left and not blocks(r) then hint(lane) end
    if blocks(r) and r.owner == owner then
      if kind_of(lane) == KEY then
        add(keys, r)
      else
        local m = r.name and r or item(id_of(r.member))
        if m.member ~= r.member or m.life == 'd' then foreign('an item') end
        add(items, { r, m })
      end
    end
  end
  if #items > 0 then
    call('ZCARD', due)
    call('ZCARD', aside)
  end
  bury_owner(owner, 'a', tombs)
  for _, r in ipairs(keys) do
    r.standing, r.expires = 'r', now
    keep(r)
    hint(r.lane)
  end
  local back, members = {}, {}
  for _, one in ipairs(items) do
    local r, m = one[1], one[2]
    r.standing, m.attempts = 'r', math.max(0, m.attempts - 1)
    keep(m)
    if r ~= m then keep(r) end
    add(back, digits(math.max(m.visible, now)), m.member)
    add(members, m.member)
  end
  write_all('ZADD', due, back)
  write_all('ZREM', aside, members)
  write_all('ZREM', owners, index)
  if #items > 0 then hint('') end
  if only == '' or alone == only then
    write('DEL', owner_name(owner))
  elseif not alone then
    -- One too many there does no harm, nor does what somebody else wrote.
    ask('SREM', owner_name(owner), only)
  end
  return 1
end) }
