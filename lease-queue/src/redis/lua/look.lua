-- Looks that change nothing. ARGV: a letter and its arguments.
--   K lane                    one key
--   L prefix, after or ''     keys in order, a page
--   I score, member, most     living items in the order of their puts, a page
--   D place, most             dead items, a page
--   N                         how full the queue is
local function state(lane)
  local r = lane_of(lane)
  if r.mark == 0 then return 0 end
  if not blocks(r) then return r.mark end
  if r.standing == 'v' then return { 2, r.mark, r.expires - now } end
  return { 3, r.mark, r.token, math.max(0, now - r.granted), r.expires - now, r.label }
end

local function one_item(id)
  local m, f = item(id, 'u', 'e', 'd')
  local size = call('HSTRLEN', m.name, 'b')
  local phase = { 0 }
  if m.life == 'd' then
    phase = { 3, f[5] or '' }
  else
    local r = m.group and lane_of('g:' .. m.group) or m
    if r.standing == 'g' and blocks(r) and r.member == m.member then
      phase = { 2, r.token, math.max(0, now - r.granted), r.expires - now, r.label }
    elseif m.visible > now then
      phase = { 1, m.visible - now }
    end
  end
  return { 1, id, m.group or '', f[3] or '', m.attempts, math.max(0, now - m.put), size,
    phase, f[4] and { f[4] } or {} }
end

local what = ARGV[1]
if what == 'K' then return { run(function() return state(ARGV[2]) end) } end

if what == 'L' then
  local prefix, after = ARGV[2], ARGV[3]
  local names = run(function()
    local from = '[' .. prefix
    if after ~= '' then from = '(' .. after end
    if prefix == '' and after == '' then from = '-' end
    local till = prefix == '' and '+' or '(' .. prefix .. '\255'
    return call('ZRANGEBYLEX', base .. ':keys', from, till, 'LIMIT', '0', '256')
  end)
  if type(names[1]) == 'number' then return { names } end
  local answers = {}
  for at, name in ipairs(names) do
    answers[at] = { 0, name, run(function() return state('k:' .. name) end) }
  end
  return answers
end

if what == 'I' then
  local score, after, most = ARGV[2], ARGV[3], ARGV[4]
  local members = run(function()
    return call('ZRANGEBYSCORE', living, score, '+inf', 'WITHSCORES', 'LIMIT', '0', most)
  end)
  if type(members[1]) == 'number' then return { members } end
  local answers = {}
  for at = 1, #members, 2 do
    local member, place = members[at], members[at + 1]
    if place ~= score or member > after then
      answers[#answers + 1] = { 0, place, member,
        run(function() return one_item(id_of(member)) end) }
    end
  end
  return answers
end

if what == 'D' then
  local after, most = ARGV[2], ARGV[3]
  local ids = run(function()
    return call('ZRANGEBYSCORE', dead, '(' .. after, '+inf', 'WITHSCORES', 'LIMIT', '0', most)
  end)
  if type(ids[1]) == 'number' then return { ids } end
  local answers = {}
  for at = 1, #ids, 2 do
    local id = ids[at]
    answers[#answers + 1] = { 0, ids[at + 1], id, run(function() return one_item(id) end) }
  end
  return answers
end

return { run(function()
  local function later(set) return call('ZCOUNT', set, '(' .. digits(now), '+inf') end
  local all, waits = call('ZCARD', living), later(delayed)
  -- A claim is what is due later for no other reason.
  local held = math.max(0, later(due) - waits - later(aside))
  waits = waits + later(behind)
  local first = call('ZRANGE', living, '0', '0', 'WITHSCORES')
  local oldest = first[2] and math.max(0, now - tonumber(first[2])) or -1
  return { 1, math.max(0, all - waits - held), waits, held, call('ZCARD', dead), oldest }
end) }
