-- Puts a dead item back. ARGV: the item.
return { run(function()
  local id = ARGV[1]
  if call('EXISTS', item_name(id)) == 0 then return 0 end
  local m = item(id)
  if m.life ~= 'd' then return 0 end
  if m.group then call('LLEN', list_name(m.group)) end
  for _, set in ipairs({ due, living, dead }) do call('ZCARD', set) end
  local member = place(places(1) + 1) .. id
  m.member, m.life, m.attempts, m.visible = member, 'l', 0, now
  write('HSET', m.name, 'h', record_of(m))
  write('HDEL', m.name, 'd')
  write('ZREM', dead, id)
  write('ZADD', living, digits(m.put), member)
  if not m.group or write('RPUSH', list_name(m.group), member) == 1 then
    write('ZADD', due, digits(now), member)
  end
  hint('')
  return 1
end) }
