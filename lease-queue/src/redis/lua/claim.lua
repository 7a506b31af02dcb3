-- Claims whatever is ready, for some owners in turn, each by itself. ARGV: for each its
-- owner, TTL in microseconds, label, how many.
--
-- All that is needed is read and judged first, then all that was granted is written, in
-- one command for what all of them change. What may fail comes first, and leaves nothing.

-- What somebody has spoiled, or what has no token left, is in nobody's way: one call looks at
-- little more than so many of it.
local IN_THE_WAY = 32
-- They are looked at again after so long.
local SET_ASIDE = 10000000

-- What was asked for as numbers, of which few differ.
local numbers = {}
local function number_of(text)
  local number = numbers[text]
  if not number then
    number = tonumber(text)
    numbers[text] = number
  end
  return number
end

-- A number that goes to the server is made a text here: it would be written with 17 digits.
local texts = {}
local function text_of(number)
  local text = texts[number]
  if not text then
    text = digits(number)
    texts[number] = text
  end
  return text
end

local wanted = 0
for n = 4, #ARGV, 4 do wanted = wanted + number_of(ARGV[n]) end

-- What is due and was not looked at yet; how much was seen before it, and how much of what
-- was cannot be granted.
local found, at, seen, whole = {}, 0, 0, false
local buried = false
local spoiled, spoiled_ones, used_up, used_up_ones = nil, {}, false, {}
local later = {}

-- The next that is due, if there is one and not too much is in its way.
local function next_due()
  at = at + 1
  if found[at] or whole or #spoiled_ones + #used_up_ones + #later > IN_THE_WAY then
    return found[at]
  end
  seen = seen + #found
  local most = wanted + (seen > 0 and IN_THE_WAY or 0)
  found = call('ZRANGEBYSCORE', due, '-inf', digits(now), 'LIMIT', seen, most)
  at, whole = 1, #found < most
  return found[1]
end

-- What was granted and is to be written: in the same place of each list one item's member,
-- its name and its record, its lane, its owner, and the group's record or nothing.
local members, names, records, lanes, claimers, groups = {}, {}, {}, {}, {}, {}
-- When each claim ends; what others had; the lanes of groups as they will be.
local ends, gone, heads = {}, {}, {}

-- Grants what is due, if it can be: the answer of it, or why it cannot, or neither if it
-- just is not free.
local function grant(member, owner, till, till_text, label)
  local id = id_of(member)
  local name = item_name(id)
  local f = ask('HMGET', name, 'h', 'g', 'b')
  if f.err then return nil, f.err end
  local life, place, put, visible, attempts, standing, mark, _, _, expires, last = read_item(f[1])
  local body, group, lane, r = f[3], f[2], nil, nil
  if life ~= 'l' or place ~= sub(member, 1, 16) or not body then
    return nil, foreign_text('an item')
  end
  if group then
    lane = 'g:' .. group
    r = heads[lane] or lane_from(lane, call('GET', lane_name(lane)))
    heads[lane] = r
    standing, mark, expires = r.standing, r.mark, r.expires
  else
    lane = 'i:' .. id
  end
  if stands(standing, expires) then
    -- As of a clock that has stepped back: it is left alone until its time comes.
    add(later, { member, expires, standing })
    return nil
  end
  local token = token_above(mark, 0)
  if not token then
    used_up = true
    add(used_up_ones, member)
    return nil
  end
  attempts = attempts + 1
  local n = #members + 1
  members[n], names[n], lanes[n], claimers[n], groups[n] = member, name, lane, owner, r or false
  records[n] = granted_item(member, put, visible, attempts, 'g', token, token, now, till, owner,
    label)
  if r then
    r.standing, r.mark, r.token, r.granted, r.expires = 'g', token, token, now, till
    r.owner, r.member, r.label = owner, member, label
  end
  ends[2 * n - 1], ends[2 * n] = till_text, member
  if last ~= NOBODY and last ~= owner then gone[#gone + 1] = last .. lane end
  return { id, group or '', token, attempts, max(0, now - put), body }
end

local function claim(owner, till, label, most)
  local answer, till_text = { 1 }, text_of(till)
  while #answer <= most do
    local member = next_due()
    if not member then break end
    local fine, granted, why = pcall(grant, member, owner, till, till_text, label)
    if not fine then granted, why = nil, granted end
    if granted then
      answer[#answer + 1] = granted
    elseif why then
      spoiled = why
      add(spoiled_ones, member)
    end
  end
  if #answer > 1 then return answer end
  if used_up then
    -- To the first alone, as if the others had come later.
    used_up = false
    return { 6 }
  end
  if spoiled then return { -1, spoiled } end
  return { 0 }
end

local function write_grants()
  if #members == 0 then return end
  local index = {}
  for n, owner in ipairs(claimers) do
    index[2 * n - 1], index[2 * n] = '0', owner .. lanes[n]
  end
  -- First, so that who abandons an owner finds all of it, wherever this ends.
  write('ZADD', owners, unpack(index))
  for n, name in ipairs(names) do
    write('HSET', name, 'h', records[n])
    if groups[n] then keep_lane(groups[n]) end
  end
  write('ZADD', due, unpack(ends))
  write_all('ZREM', owners, gone)
end

-- Sets aside what would be in the way of the next claims too.
local function set_aside()
  local waits, apart, till = {}, {}, digits(now + SET_ASIDE)
  for _, one in ipairs(later) do
    add(waits, one[2], one[1])
    if one[3] == 'v' then add(apart, one[2], one[1]) end
  end
  local function aside_all(members)
    for _, member in ipairs(members) do
      add(waits, till, member)
      add(apart, till, member)
    end
  end
  aside_all(used_up_ones)
  if #spoiled_ones + #used_up_ones > IN_THE_WAY then aside_all(spoiled_ones) end
  write_all('ZADD', due, waits)
  write_all('ZADD', aside, apart)
end

-- What there is for whom nothing was ready: when there will be.
local function nothing()
  trim()
  local first = call('ZRANGE', due, '0', '0', 'WITHSCORES')[2]
  return { 0, first and math.max(0, tonumber(first) - now) or -1 }
end

-- One owner's. What was granted when it fails is as if it had not been.
local function claim_of(at)
  local why = buried and tombstone(ARGV[at])
  if why then return { why == 'r' and 4 or 3 } end
  return claim(ARGV[at], now + number_of(ARGV[at + 1]), ARGV[at + 2], number_of(ARGV[at + 3]))
end

local answers, has = {}, {}
local trouble = run(function()
  local tombs_of = {}
  for n = 1, #ARGV, 4 do tombs_of[#tombs_of + 1] = tomb_name(ARGV[n]) end
  -- As a rule there is none.
  buried = call('EXISTS', unpack(tombs_of)) > 0
end)
for n = 1, #ARGV, 4 do
  local number, from = #answers + 1, #members
  local answer = trouble or run(claim_of, n)
  if answer[1] < 0 then
    for k = #members, from + 1, -1 do
      heads[lanes[k]] = nil
      members[k], names[k], claimers[k], ends[2 * k], ends[2 * k - 1] = nil, nil, nil, nil, nil
    end
  end
  answers[number], has[number] = answer, #members > from
end
local fine, err = pcall(write_grants)
if fine then pcall(set_aside) else trouble = failed(err) end
local none
for number, answer in ipairs(answers) do
  if has[number] and not fine then
    answers[number] = trouble
  elseif answer[1] == 0 then
    wrote = false
    none = none or run(nothing)
    answers[number] = none
  end
end
return answers
