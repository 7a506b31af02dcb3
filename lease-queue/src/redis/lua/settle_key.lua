-- Settles the claim of a key, at once.
local function settle_key(what, lane, owner, token, ttl)
  local both = call('MGET', lane_name(lane), owner_name(owner))
  -- What is no text is asked for once more, to be refused.
  local r, one = lane_from(lane, both[1] or call('GET', lane_name(lane))), both[2]
  local own = r.owner == owner and r.token == token
  if not (own and r.standing == 'g' and blocks(r)) then
    return not_live(own, r.standing, r.token, what, nil, owner, token)
  end
  if what == 'E' then
    if now + ttl > r.expires then
      r.expires = now + ttl
      note_owner(owner, lane, ttl, one)
      keep_lane(r)
    end
    return 1
  end
  r.standing, r.expires = 's', now
  keep_lane(r)
  disown(owner, lane, one)
  hint(lane)
  return 1
end
return settle_key
