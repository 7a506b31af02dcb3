-- The keys of a queue in one sorted set, to list them. Redis drops the record of an idle
-- key by itself: with each new one, two of the others are looked at in turn, so that
-- no more is left of those than there are new ones.
-- That a new one can be noted: looked at before anything is written.
local function look_at_keys()
  call('ZCARD', base .. ':keys')
  call('GET', base .. ':sweep')
end
local function note_key(key)
  local all, place = base .. ':keys', base .. ':sweep'
  write('ZADD', all, '0', key)
  local after = call('GET', place)
  local from = after and '(' .. after or '-'
  local some = call('ZRANGEBYLEX', all, from, '+', 'LIMIT', '0', '2')
  for _, other in ipairs(some) do
    if call('EXISTS', lane_name('k:' .. other)) == 0 then write('ZREM', all, other) end
  end
  if #some == 2 then
    write('SET', place, some[2])
  elseif after then
    write('DEL', place)
  end
end
