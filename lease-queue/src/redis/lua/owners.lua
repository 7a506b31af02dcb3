-- What an owner has of keys, to abandon it: a text of one lane, or a set of more, that
-- ends with its grants. (Of items, it stands in `owners`.)
local function owner_name(owner) return base .. ':o:' .. owner end
local function is_lane(name) return string.find(name, '^k:') == 1 end

-- The one key of an owner who has one alone.
local function one_of(owner) return call('MGET', owner_name(owner))[1] end
-- Notes a key of an owner's for as long as it may be. `one` is what `one_of` said, if it
-- was asked.
local function note_owner(owner, lane, ttl, one)
  local name = owner_name(owner)
  local needed = math.ceil(ttl / 1000) + 1000
  if not one then
    -- As a rule it is new.
    if call('SET', name, lane, 'PX', digits(needed), 'NX') then
      wrote = true
      return
    end
    one = one_of(owner)
  end
  if one and not is_lane(one) then foreign('what an owner has') end
  local left = call('PTTL', name)
  if not one then
    write('SADD', name, lane)
  elseif one ~= lane then
    write('DEL', name)
    write('SADD', name, one, lane)
  end
  if left < needed or one and one ~= lane then
    write('PEXPIRE', name, digits(math.max(left, needed)))
  end
end
-- Whoever abandons the owner looks at each lane: one too many does no harm.
local function disown(owner, lane, one)
  if one == lane then
    write('DEL', owner_name(owner))
  elseif not one and owner ~= NOBODY then
    redis.pcall('SREM', owner_name(owner), lane)
  end
end
