-- Every operation of a lease, for one or many keys in one atomic step.
--
-- Before this text stand the settings: the two retentions and the quarantine
-- (0 for none), in microseconds, and the command that publishes.
--
-- KEYS[i]  the record of operation i, and last the birth marker, which a node of
--          a cluster is told only where it may be looked at. A tombstone is
--          named after its record and stands in the same hash slot.
-- ARGV     the operations: a letter, then its arguments
--
-- Returns for each operation a number, where that says all, or an array;
-- { -1, text } is an error, and then that operation changed nothing.
--
-- A record: 'L1', its standing (g granted, r released, v revoked, n no grant
-- yet), five little-endian doubles (mark, token, granted, expires, buried), the
-- owner's 16 bytes, the label. Times are microseconds since the Unix epoch by
-- this server's clock. Until `buried` a tombstone may stand beside it. A mark of
-- 0 is none: such a record only says that there are tombstones.
--
-- The birth marker: B1 life since first [length]
-- the server's life when it was last seen to have begun anew (0: not looked at),
-- when that was, and when the store was first used. A life is the server's run
-- id and right behind it the replication id of its data: the first changes when
-- it starts, the second when it is made a primary. Clients with a quarantine add
-- its length in microseconds: all of them must have the same.
--
-- How fast this is counts: the server does nothing else meanwhile. So a record is
-- packed (to read and write text would take most of the time), and the usual
-- way of the usual operations is one loop without a function: to make functions
-- would cost more than to run them. What is rare is made when it is needed.
-- Numbers are never made text by '..', which would write 1.796e+15, and numbers
-- as arguments of a call cost more than text.

local LAYOUT, SIZE = '<c2c1dddddc16', 59
local MAX_TOKEN, MAX_CLOCK = 9007199254740991, 4503599627370496
local call, pack, unpack = redis.pcall, struct.pack, struct.unpack

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local rare

local replies, at, key, what = {}, 1, 1, ARGV[1]
while what do
  local name, reply, after = KEYS[key], nil, 1

  -- Every operation reads the record first. Without one, all is none.
  local raw = call('GET', name)
  local magic, standing, mark, token, granted, expires, buried, owner =
    'L1', 'n', 0, 0, 0, 0, 0, ''
  if raw then
    if type(raw) == 'table' then
      reply = { -1, raw.err }
    elseif #raw < SIZE then
      magic = nil
    else
      magic, standing, mark, token, granted, expires, buried, owner = unpack(LAYOUT, raw)
    end
    if not reply and (magic ~= 'L1' or not (mark >= 0 and mark <= MAX_TOKEN
      and token >= 0 and token <= mark and granted >= 0 and expires >= 0 and buried >= 0)) then
      reply = { -1, 'FOREIGN the value at the name of a lease is not a lease' }
    end
  end
  local blocks = now < expires and (standing == 'g' or standing == 'v')
  -- Set by those of the operations below that grant or prolong: the label to
  -- write with the record, the expiry that was asked for, and how many
  -- milliseconds a record with that expiry is kept.
  local label, fresh, keep

  if not rare and (mark == 0 or now < buried or quarantine > 0 or what == 'B' or what == 'F') then
    rare = (function()
      local rare, born = {}, nil

      local function tomb(name, owner)
        return name .. ':' .. string.gsub(owner, '.', function(byte)
          return string.format('%02x', string.byte(byte))
        end)
      end

      -- Why this owner must not have the key: 'a' abandoned, 'r' revoked, or
      -- false; or nil and an error.
      function rare.tombstone(name, owner)
        local why = call('GET', (tomb(name, owner)))
        if type(why) == 'table' then return nil, why.err end
        return why
      end

      -- Leaves a tombstone. Returns until when the key has some, or nil and an
      -- error.
      function rare.bury(name, owner, why, us, known)
        local place = tomb(name, owner)
        local left = call('PTTL', place)
        if type(left) == 'table' then return nil, left.err end
        local ms = math.max(left, math.ceil(us / 1000))
        local done = call('SET', place, why, 'PX', ms)
        if done.err then return nil, done.err end
        return math.max(known, now + ms * 1000)
      end

      -- Writes a record with the label of the raw one. Returns the reply.
      function rare.put(name, raw, reply, freed,
        standing, mark, token, granted, expires, buried, owner)
        if owner == '' then owner = string.rep('\0', 16) end
        local label = raw and string.sub(raw, SIZE + 1) or ''
        -- Without a mark it is there for the tombstones alone.
        local keep = mark == 0 and buried or math.max(now, expires, mark, buried) + retention
        local done = call('SET', name,
          pack(LAYOUT, 'L1', standing, mark, token, granted, expires, buried, owner) .. label,
          'PX', math.ceil((keep - now) / 1000) + 1)
        if done.err then return { -1, done.err } end
        if freed then call(publish, name, '') end
        return reply
      end

      -- Returns the birth marker, written if there is none; or nil and an error.
      local function birth()
        if born then return born end
        local place = KEYS[#KEYS]
        local marker = call('GET', place)
        if type(marker) == 'table' then return nil, marker.err end
        if not marker then
          local done = call('SET', place, string.format('B1 0 0 %.0f', now))
          if done.err then return nil, done.err end
          born = { life = '0', since = 0, first = now, length = 0 }
          return born
        end
        local life, since, first, length =
          string.match(marker, '^B1 (%x+) (%d+) (%d+)( ?%d*)$')
        if not life then
          return nil, 'FOREIGN the value at the name of the birth marker is not one'
        end
        length = tonumber(length) or 0
        -- A grant of theirs may outlast our quarantine, or one of ours theirs.
        if what == 'A' and length > 0 and length ~= quarantine then
          return nil, string.format(
            'QUARANTINE other clients of this prefix have a quarantine of %.0f ms, and this one %s',
            length / 1000, quarantine > 0 and string.format('of %.0f ms', quarantine / 1000) or 'none')
        end
        born = { life = life, since = tonumber(since), first = tonumber(first), length = length }
        return born
      end

      -- What is known of the mark of a key without one: it was never used, or
      -- its mark was dropped, and every mark that was ever dropped is below
      -- now - retention. None was in a store that is younger than that. Returns
      -- nil and an error if the birth marker fails.
      function rare.floor()
        local b, err = birth()
        if not b then return nil, err end
        -- A store from the future is as old as can be: the clock stepped back.
        if b.first <= now and now - b.first <= retention then return 0 end
        return math.max(0, now - retention)
      end

      -- A word of what INFO tells; or nil and an error.
      local function told(section, what)
        -- One section each: Redis 6 takes no more.
        local info = call('INFO', section)
        if type(info) == 'table' then return nil, info.err end
        local word = string.match(info, what .. ':(%x+)')
        if word then return word end
        return nil, 'ERR the server tells no ' .. what .. ', which the quarantine needs'
      end

      -- The server's life, as it stands in the birth marker; or nil and an error.
      function rare.life()
        local run, err = told('server', 'run_id')
        if not run then return nil, err end
        local data, err = told('replication', 'master_replid')
        if not data then return nil, err end
        return run .. data
      end

      -- How long grants are still refused, in microseconds; or nil and an error.
      function rare.quarantined()
        local life, err = rare.life()
        if not life then return nil, err end
        local b, err = birth()
        if not b then return nil, err end
        if b.life ~= life or b.since > now or b.length == 0 then
          -- Another life of the server, or other data: what was granted before
          -- may be forgotten.
          local done = call('SET', KEYS[#KEYS],
            string.format('B1 %s %.0f %.0f %.0f', life, now, b.first, quarantine))
          if done.err then return nil, done.err end
          b.life, b.since, b.length = life, now, quarantine
        end
        return math.max(0, b.since + quarantine - now)
      end

      return rare
    end)()
  end

  if what == 'A' then
    local asker, ttl = ARGV[at + 1], tonumber(ARGV[at + 2])
    local exactly, number = ARGV[at + 4] == 'e', tonumber(ARGV[at + 5])
    after, fresh, keep = 7, now + ttl, ARGV[at + 3]
    if not reply and now < buried then
      local why, err = rare.tombstone(name, asker)
      if why == nil then
        reply = { -1, err }
      elseif why then
        reply = { why == 'r' and 4 or 3 }
      end
    end
    if reply then
      -- Answered.
    elseif blocks then
      if owner ~= asker then
        reply = { 0, token, now > granted and now - granted or 0, expires - now,
          string.sub(raw, SIZE + 1) }
      elseif standing == 'v' then
        reply = { 4 }
      elseif exactly and number < mark then
        reply = { 2, mark }
      else
        if exactly then token, mark = number, number end
        if fresh > expires then expires = fresh end
        label, reply = string.sub(raw, SIZE + 1), token
      end
    else
      local known, left, err = mark, 0, nil
      if quarantine > 0 then left, err = rare.quarantined() end
      if left == 0 and mark == 0 then known, err = rare.floor() end
      if err then
        reply = { -1, err }
      elseif left > 0 then
        reply = { 5, left }
      elseif exactly and number <= known then
        reply = { 2, known }
      else
        local new = number
        if not exactly then
          new = now < MAX_CLOCK and now or MAX_CLOCK
          if known >= new then new = known + 1 end
          if number >= new then new = number + 1 end
        end
        if new > MAX_TOKEN then
          reply = { 6 }
        else
          reply = new
          if standing == 'g' or standing == 'v' then
            reply = { 1, new, token, string.sub(raw, SIZE + 1) }
          end
          standing, mark, token, owner, label = 'g', new, new, asker, ARGV[at + 6]
          granted, expires = now, fresh
        end
      end
    end

  elseif what == 'L' then
    after = 3
    if reply then
      -- Answered.
    elseif standing ~= 'g' or not blocks or owner ~= ARGV[at + 1]
      or token ~= tonumber(ARGV[at + 2]) then
      reply = 0
    else
      -- The standing alone; the mark stays as long as it would have.
      local done = call('SETRANGE', name, '2', 'r')
      if type(done) == 'table' then
        reply = { -1, done.err }
      else
        call(publish, name, '')
        reply = 1
      end
    end

  elseif what == 'R' then
    local asker, which = ARGV[at + 1], tonumber(ARGV[at + 2])
    after, fresh, keep = 5, now + tonumber(ARGV[at + 3]), ARGV[at + 4]
    if reply then
      -- Answered.
    elseif owner == asker and token == which then
      if standing ~= 'g' then
        reply = { 0, standing }
      elseif not blocks then
        reply = { 0, 'e' }
      else
        reply = 1
        if fresh > expires then
          expires, label = fresh, string.sub(raw, SIZE + 1)
        end
      end
    else
      local why, err = false, nil
      if now < buried then why, err = rare.tombstone(name, asker) end
      if err then
        reply = { -1, err }
      elseif why then
        reply = { 0, why == 'r' and 'v' or 'r' }
      else
        reply = { 0, token > which and 't' or 'u' }
      end
    end

  elseif what == 'B' then
    after = 2
    if not reply then
      local asker = ARGV[at + 1]
      local till, err = rare.bury(name, asker, 'a', tombstones, buried)
      if err then
        reply = { -1, err }
      else
        local freed = blocks and owner == asker
        if freed then standing = 'r' end
        reply = rare.put(name, raw, 1, freed,
          standing, mark, token, granted, expires, till, owner)
      end
    end

  elseif what == 'F' then
    after = 3
    if not reply then
      local known, err, till, freed = mark, nil, buried, false
      if mark == 0 then known, err = rare.floor() end
      if not err then
        local at_least = tonumber(ARGV[at + 1])
        mark = known > at_least and known or at_least
        if blocks and token < mark then
          till, err = rare.bury(name, owner, 'r', expires - now + tombstones, buried)
          standing = 'v'
          if ARGV[at + 2] == '1' then expires, freed = now, true end
        end
      end
      if err then
        reply = { -1, err }
      else
        reply = rare.put(name, raw, mark, freed,
          standing, mark, token, granted, expires, till, owner)
      end
    end

  elseif not reply then
    if mark == 0 then
      reply = 0
    elseif not blocks then
      reply = mark
    elseif standing == 'v' then
      reply = { 2, mark, expires - now }
    else
      reply = { 3, mark, token, now > granted and now - granted or 0, expires - now,
        string.sub(raw, SIZE + 1) }
    end
  end

  -- The mark is kept until the clock has passed it by the retention: whatever
  -- mark is dropped is below now - retention ever after.
  if label then
    if expires ~= fresh or mark > expires or buried > expires then
      keep = string.format('%.0f', math.ceil(
        (math.max(expires, mark, buried) + retention - now) / 1000) + 1)
    end
    local done = call('PSETEX', name, keep,
      pack(LAYOUT, 'L1', standing, mark, token, granted, expires, buried, owner) .. label)
    if done.err then reply = { -1, done.err } end
  end

  replies[key] = reply
  at = at + after
  key = key + 1
  what = ARGV[at]
end
return replies
