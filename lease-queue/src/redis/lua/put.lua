-- Puts items. ARGV: for each its identity, payload, group ('' none), deduplication
-- key ('' none) and delay in microseconds.
return { run(function()
  local answers, new, keys = { 1 }, {}, {}
  for at = 1, #ARGV, 5 do
    local id, dedup = ARGV[at], ARGV[at + 3]
    local of = nil
    if call('EXISTS', item_name(id), done_name(id)) == 0 then
      if dedup ~= '' then
        of = keys[dedup] or call('GET', base .. ':u:' .. dedup)
        if of and #of ~= 32 then foreign('a deduplication key') end
      end
      if not of then
        keys[dedup] = id
        new[#new + 1] = at
        if ARGV[at + 2] ~= '' then call('LLEN', list_name(ARGV[at + 2])) end
      end
    end
    answers[#answers + 1] = of or 1
  end
  if #new == 0 then return answers end
  call('ZCARD', living())
  call('ZCARD', ready())
  born()
  local first, waits = places(#new), false
  for number, at in ipairs(new) do
    local id, group, dedup, delay = ARGV[at], ARGV[at + 2], ARGV[at + 3], tonumber(ARGV[at + 4])
    local m = { id = id, place = place(first + number), put = now, visible = now + delay,
      group = group ~= '' and group or nil }
    m.member = m.place .. id
    local fields = { 'p', m.place, 't', digits(now), 'v', digits(m.visible), 'a', '0',
      'b', ARGV[at + 1] }
    if m.group then
      fields[#fields + 1] = 'g'
      fields[#fields + 1] = group
    end
    if dedup ~= '' then
      fields[#fields + 1] = 'u'
      fields[#fields + 1] = dedup
      write('SET', base .. ':u:' .. dedup, id)
    end
    write('HSET', item_name(id), unpack(fields))
    line_up(m)
    if delay > 0 then
      waits = true
      write('ZADD', delayed(), digits(m.visible), m.member)
    end
  end
  -- Those whose time has come are not told apart from the others.
  if waits then write('ZREMRANGEBYSCORE', delayed(), '-inf', digits(now)) end
  hint('')
  return answers
end) }
