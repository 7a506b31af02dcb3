-- Settles claims, each by itself. ARGV: for each a letter (E extend, C complete, R retry,
-- B bury), lane, item, owner, token, and two arguments: of E the TTL, of R the delay, both
-- in microseconds, with '0' or '1' for whether it counts and the error behind it; of B
-- the reason.
--
-- Each is read and judged first, and what was decided is written together, in one command
-- for what all of them change. What comes first may be written when the memory is full:
-- work that is done makes room.
local argv = ARGV

-- That what is written last can be written: asked once, since nobody comes between.
local looked = {}
local function look(command, name)
  if looked[name] then return end
  call(command, name)
  looked[name] = true
end

local function look_at_counter()
  local last = call('GET', base .. ':n')
  if last and not (string.find(last, '^%d+$') and tonumber(last) < MAX_CLOCK) then
    foreign('the counter')
  end
end

-- What was decided and is not written yet, which answers wait for it, and which lanes and
-- items it is about.
local tombs_ms = digits(math.ceil(tombs / 1000))
local answers, waits, about = {}, nil, nil
-- Owners with their lanes; members that leave; names; names and values that last for the
-- retention; names and fields; lanes; lists and members.
local disowned, left, deleted, done, changed, kept, popped
-- Members, with their scores where they get one, and whether somebody may claim.
local comes, waiting, no_longer, buried, more
local function begin()
  waits, about, disowned, left, deleted, done, changed, kept, popped =
    {}, {}, {}, {}, {}, {}, {}, {}, {}
  comes, waiting, no_longer, buried, more = {}, {}, {}, {}, false
end
begin()

local function write_decided()
  write_all('ZREM', owners, disowned)
  write_all('ZREM', due, left)
  write_all('ZREM', living, left)
  if #deleted > 0 then write('DEL', unpack(deleted)) end
  for n = 1, #done, 2 do write('SET', done[n], done[n + 1], 'PX', tombs_ms) end
  for _, one in ipairs(changed) do write('HSET', unpack(one)) end
  for n = 1, #popped, 2 do write('LREM', popped[n], '1', popped[n + 1]) end
  for _, r in ipairs(kept) do keep_lane(r) end
  write_all('ZADD', due, comes)
  write_all('ZREM', behind, no_longer)
  if #waiting > 0 then
    write_all('ZADD', delayed, waiting)
    trim()
  end
  if #buried > 0 then
    local all, first = {}, of_places()(#buried)
    for n, id in ipairs(buried) do add(all, digits(first + n), id) end
    write_all('ZADD', dead, all)
  end
  if more then hint('') end
end

-- Writes it, or tells all of them why not.
local function flush()
  if #waits == 0 then return end
  wrote = false
  local fine, err = pcall(write_decided)
  if not fine then
    local why = failed(err)
    for _, number in ipairs(waits) do answers[number] = why end
  end
end

-- A group's head leaves it, and the next one follows.
local function follow(group, member)
  local list = list_name(group)
  look('ZCARD', delayed)
  look('ZCARD', behind)
  local two = call('LRANGE', list, '0', '1')
  add(popped, list, member)
  local head = two[1] == member and two[2] or two[1] ~= member and two[1]
  if not head then return end
  -- Whatever somebody made of it is the trouble of its own claim.
  local f = ask('HMGET', item_name(id_of(head)), 'h')
  local life, _, _, visible = read_item(f[1])
  if not life then visible = now end
  add(comes, max(visible, now), head)
  if visible > now then
    add(no_longer, head)
    add(waiting, visible, head)
  end
  more = true
end

-- The lane of a group; of another item's own as much as tells who had it.
local function lane_of_others(lane)
  if kind_of(lane) == ITEM then
    local f = call('HMGET', item_name(sub(lane, 3)), 'h', 'g')
    local life, _, _, _, _, standing, mark, token = read_item(f[1])
    if life and not f[2] then
      return { standing = standing, mark = mark, token = token, expires = 0, owner = NOBODY,
        member = NOTHING }
    end
  end
  return lane_from(lane, call('GET', lane_name(lane)))
end

-- Decides on the claim of an item, and notes what is to be written.
local function settle(what, lane, id, owner, token_text, first, second)
  local token, name = tonumber(token_text), item_name(id)
  local f = call('HMGET', name, 'h', 'g', 'u')
  local raw, group = f[1], f[2]
  local life, place, put, visible, attempts, standing, mark, last, granted, expires, last_owner =
    read_item(raw)
  local own, r
  if lane == 'i:' .. id and not group then
    if not life then
      -- Whatever else stands there.
      if call('EXISTS', name) == 1 then foreign('an item') end
      standing, last, expires, last_owner = 'n', 0, 0, NOBODY
    end
    own = last_owner == owner and last == token
  else
    r = lane_of_others(lane)
    own = r.owner == owner and r.token == token and id_of(r.member) == id
    standing, last, expires = r.standing, r.token, r.expires
  end
  if not (own and standing == 'g' and now < expires) then
    return not_live(own, standing, last, what, id, owner, token)
  end
  if life ~= 'l' or mark < 1 or lane ~= (group and 'g:' .. group or 'i:' .. id)
    or r and r.member ~= place .. id then
    foreign('an item')
  end
  look('ZCARD', due)
  local member = place .. id
  if what == 'E' then
    local till = now + tonumber(first)
    if till <= expires then return 1 end
    if r then
      r.expires = till
      add(kept, r)
    else
      add(changed, { name, 'h', granted_item(member, put, visible, attempts, 'g', mark, last,
        granted, till, owner, label_of(raw)) })
    end
    add(comes, till, member)
    return 1, true
  end
  look('ZCARD', living)
  if what == 'B' then
    look('ZCARD', dead)
    look_at_counter()
  end
  if what == 'R' then
    look('ZCARD', delayed)
    if group then call('LLEN', list_name(group)) end
    visible = now + tonumber(first)
    if sub(second, 1, 1) == '0' then attempts = max(0, attempts - 1) end
    add(comes, visible, member)
    if visible > now then add(waiting, visible, member) end
    more = true
  else
    if group then follow(group, member) end
    left[#left + 1] = member
  end
  if r then
    r.standing = 's'
    kept[#kept + 1] = r
  end
  disowned[#disowned + 1] = owner .. lane
  local n = #done
  if what == 'C' then
    -- Of an item alone nothing is left to keep a mark for: its identity never comes back.
    deleted[#deleted + 1] = name
    done[n + 1], done[n + 2] = done_prefix .. id, owner .. token_text
    if f[3] then done[n + 3], done[n + 4] = dedup_name(f[3]), id end
    return 1, true
  end
  done[n + 1], done[n + 2] = settled_name(id, owner, token), ''
  local record = granted_item(member, put, visible, attempts, 's', mark, last, granted,
    expires, owner, label_of(raw))
  if what == 'R' then
    changed[#changed + 1] = { name, 'h', record }
    if #second > 1 then add(changed[#changed], 'e', sub(second, 3)) end
  else
    changed[#changed + 1] = { name, 'h', sub(record, 1, 2) .. 'd' .. sub(record, 4), 'd', first,
      'e', first }
    add(buried, id)
  end
  return 1, true
end

local settle_key
for n = 1, #argv, 7 do
  local what, lane, id, owner, token = argv[n], argv[n + 1], argv[n + 2], argv[n + 3], argv[n + 4]
  -- What was decided before about the same is seen.
  if about[lane] or about[id] then
    flush()
    begin()
  end
  local number = #answers + 1
  wrote = false
  local fine, answer, decided
  if kind_of(lane) == KEY then
    settle_key = settle_key or of_keys()
    fine, answer = pcall(settle_key, what, lane, owner, tonumber(token), tonumber(argv[n + 5]))
  else
    fine, answer, decided = pcall(settle, what, lane, id, owner, token, argv[n + 5], argv[n + 6])
  end
  answers[number] = fine and answer or failed(answer)
  if decided then
    about[lane], about[id] = true, true
    waits[#waits + 1] = number
  end
end
flush()
return answers
