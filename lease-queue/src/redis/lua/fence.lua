-- Raises a lane's mark. ARGV: lane, at least, '1' for at once.
return { run(function()
  local lane, at_least, at_once = ARGV[1], tonumber(ARGV[2]), ARGV[3] == '1'
  local r = lane_of(lane)
  local known_before, freed = r.known, false
  local mark = math.max(r.known and r.mark or floor(), at_least)
  local revokes = r.blocks and r.token < mark
  r.mark = mark
  if revokes then
    local m = nil
    if not is_key(lane) then m = item(id_of(r.member)) end
    bury_owner(r.owner, 'r', r.expires - now + tombs)
    r.standing = 'v'
    if at_once then r.expires, freed = now, true end
    keep(r)
    -- Its place again, once nobody can believe in the claim.
    if m then back(m.member, m.visible, r.expires) end
  else
    keep(r)
  end
  if not known_before and is_key(lane) then note_key(string.sub(lane, 3)) end
  if freed then hint(lane) end
  return mark
end) }
