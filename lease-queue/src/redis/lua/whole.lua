-- Items and lanes of any kind, for what is not done for each of many.
-- An item as it stands, with its fields, as many as are asked for; raises an error if it is
-- not one.
local function item(id, ...)
  local name = item_name(id)
  local f = call('HMGET', name, 'h', 'g', ...)
  local m = { id = id, name = name, group = f[2] or nil }
  local place
  m.life, place, m.put, m.visible, m.attempts, m.standing, m.mark, m.token, m.granted, m.expires,
    m.owner = read_item(f[1])
  if not m.life then foreign('an item') end
  m.member, m.label = place .. id, label_of(f[1])
  return m, f
end
local function record_of(m)
  if m.mark == 0 then
    return pack(FRESH, 'Q1', m.life, m.member, m.put, m.visible, m.attempts)
  end
  return pack(GRANTED, 'Q1', m.life, m.member, m.put, m.visible, m.attempts, m.standing,
    m.mark, m.token, m.granted, m.expires, m.owner) .. m.label
end
local function lane_of_item(m) return m.group and 'g:' .. m.group or 'i:' .. m.id end

-- Any lane's record. That of an item without a group is the item's own; a mark that a fence
-- set before there was the item is a text, until the item is put.
local function lane_of(lane)
  if kind_of(lane) == ITEM then
    local id = sub(lane, 3)
    local m = call('EXISTS', item_name(id)) == 1 and item(id)
    if m and not m.group then return m end
  end
  return lane_from(lane, call('GET', lane_name(lane)))
end

-- That of an item lasts as long as the item, whose identity never comes back.
local function keep(r)
  if r.name then write('HSET', r.name, 'h', record_of(r)) else keep_lane(r) end
end

-- Whoever had claims is refused from now on.
local function bury_owner(owner, why, us)
  local left = call('PTTL', tomb_name(owner))
  write('SET', tomb_name(owner), why, 'PX', digits(max(left, math.ceil(us / 1000))))
end
