-- Puts a dead item back. ARGV: the item.
return { run(function()
  local id = ARGV[1]
  if call('EXISTS', item_name(id)) == 0 then return 0 end
  local m = item(id)
  if not m.dead then return 0 end
  if m.group then call('LLEN', list_name(m.group)) end
  call('ZCARD', ready())
  call('ZCARD', living())
  m.place, m.visible = place(places(1) + 1), now
  m.member = m.place .. id
  write('HSET', item_name(id), 'a', '0', 'v', digits(now), 'p', m.place)
  write('HDEL', item_name(id), 'd')
  write('ZREM', dead(), id)
  line_up(m)
  hint('')
  return 1
end) }
