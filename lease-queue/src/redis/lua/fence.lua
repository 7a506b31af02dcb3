-- Raises a lane's mark. ARGV: lane, at least, '1' for at once.
return { run(function()
  local lane, at_least, at_once = ARGV[1], tonumber(ARGV[2]), ARGV[3] == '1'
  local r = lane_of(lane)
  local known_before, freed = r.mark > 0, false
  local is_new_key = not known_before and kind_of(lane) == KEY
  if is_new_key then look_at_keys() end
  local mark = math.max(known_before and r.mark or floor(), at_least)
  local revokes = blocks(r) and r.token < mark
  r.mark = mark
  if revokes then
    local m = nil
    if kind_of(lane) ~= KEY then
      m = r.name and r or item(id_of(r.member))
      call('ZCARD', due)
      call('ZCARD', aside)
    end
    bury_owner(r.owner, 'r', r.expires - now + tombs)
    r.standing = 'v'
    if at_once then r.expires, freed = now, true end
    keep(r)
    if m then
      -- Its place again, once nobody can believe in the claim.
      local at = digits(math.max(m.visible, r.expires))
      write('ZADD', due, at, m.member)
      if at_once then write('ZREM', aside, m.member) else write('ZADD', aside, at, m.member) end
    end
  else
    keep(r)
  end
  if is_new_key then note_key(string.sub(lane, 3)) end
  if freed then hint(lane) end
  return mark
end) }
