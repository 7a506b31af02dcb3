-- Gives an acquisition up. ARGV: owner, and '' or the one lane that is meant.
return { run(function()
  local owner, only = ARGV[1], ARGV[2]
  local lanes = { only }
  local alone = one_of(owner)
  -- What somebody else wrote there hides what the owner has.
  if only == '' and alone and not is_lane(alone) then foreign('what an owner has') end
  if only == '' then lanes = alone and { alone } or call('SMEMBERS', owner_name(owner)) end
  -- Whoever gives up makes room for those behind it.
  local left = false
  if only ~= '' and is_key(only) then
    local key = string.sub(only, 3)
    if call('EXISTS', place_name(key)) == 1 and call('HGET', place_name(key), owner) then
      unlogged(function() leave_line(key, owner) end)
      left = true
    end
  end
  -- All of it is read before anything is written.
  local freed = {}
  for _, lane in ipairs(lanes) do
    local r = lane_of(lane)
    if left and not r.blocks then hint(lane) end
    if r.blocks and r.owner == owner then
      local m = nil
      if not is_key(lane) then
        m = item(id_of(r.member))
        if m.member ~= r.member or m.dead then foreign('an item') end
      end
      freed[#freed + 1] = { r, m }
    end
  end
  bury_owner(owner, 'a', tombs)
  for _, one in ipairs(freed) do
    local r, m = one[1], one[2]
    r.standing = 'r'
    if not m then r.expires = now end
    keep(r)
    if m then
      write('HSET', item_name(m.id), 'a', digits(math.max(0, m.attempts - 1)))
      back(m.member, m.visible, now)
    end
    hint(r.lane)
  end
  if only == '' or alone == only then
    write('DEL', owner_name(owner))
  elseif not alone then
    write('SREM', owner_name(owner), only)
  end
  return 1
end) }
