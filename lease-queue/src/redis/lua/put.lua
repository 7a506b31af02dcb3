-- Puts items. ARGV: for each its identity, payload, group ('' none), deduplication
-- key ('' none) and delay in microseconds.

-- The mark of an item's lane that was set before it was put.
local function mark_before(id) return lane_from('', call('GET', lane_name('i:' .. id))).mark end

return { run(function()
  local names = {}
  for at = 1, #ARGV, 5 do
    local id = ARGV[at]
    add(names, item_name(id), done_name(id))
    add(names, lane_name('i:' .. id))
  end
  -- As a rule nothing is known of any.
  local all_new = call('EXISTS', unpack(names)) == 0
  local answers, new, keys, groups = { 1 }, {}, {}, {}
  for at = 1, #ARGV, 5 do
    local id, group, dedup = ARGV[at], ARGV[at + 2], ARGV[at + 3]
    local of = nil
    if all_new or call('EXISTS', item_name(id), done_name(id)) == 0 then
      if dedup ~= '' then
        of = keys[dedup] or call('GET', dedup_name(dedup))
        if of and #of ~= 32 then foreign('a deduplication key') end
      end
      if not of then
        keys[dedup] = id
        local m = { id = id, at = at, group = group ~= '' and group or nil,
          dedup = dedup ~= '' and dedup or nil, visible = now + tonumber(ARGV[at + 4]), put = now,
          life = 'l', attempts = 0, standing = 'n', mark = 0, token = 0, granted = 0, expires = 0,
          owner = NOBODY, label = '' }
        if m.group then
          if not groups[group] then call('LLEN', list_name(group)) end
          groups[group] = groups[group] or {}
        elseif not all_new then
          m.mark = mark_before(id)
        end
        add(new, m)
      end
    end
    add(answers, of or 1)
  end
  if #new == 0 then return answers end
  for _, set in ipairs({ living, due, delayed, behind, aside }) do call('ZCARD', set) end
  born()
  local first = places(#new)
  local put, ready, waits, follow, waits_behind = {}, {}, {}, {}, {}
  for number, m in ipairs(new) do
    m.member = place(first + number) .. m.id
    local all = { 'h', record_of(m), 'b', ARGV[m.at + 1] }
    if m.group then
      add(all, 'g', m.group)
      add(groups[m.group], m.member)
      add(follow, m)
    else
      add(ready, m.visible, m.member)
      if m.visible > now then add(waits, m.visible, m.member) end
    end
    if m.dedup then
      add(all, 'u', m.dedup)
      write('SET', dedup_name(m.dedup), m.id)
    end
    write('HSET', item_name(m.id), unpack(all))
    if m.mark > 0 then write('DEL', lane_name('i:' .. m.id)) end
    add(put, now, m.member)
  end
  write_all('ZADD', living, put)
  local heads = {}
  for group, members in pairs(groups) do
    if #members > 0 and write('RPUSH', list_name(group), unpack(members)) == #members then
      heads[members[1]] = true
    end
  end
  for _, m in ipairs(follow) do
    if heads[m.member] then add(ready, m.visible, m.member) end
    if m.visible > now then
      add(heads[m.member] and waits or waits_behind, m.visible, m.member)
    end
  end
  write_all('ZADD', due, ready)
  write_all('ZADD', delayed, waits)
  write_all('ZADD', behind, waits_behind)
  if #waits + #waits_behind > 0 then trim() end
  hint('')
  return answers
end) }
