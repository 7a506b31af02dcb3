-- Lanes that have a record of their own.
local function is_record(magic, mark, token, granted, expires)
  return magic == 'Q1' and mark >= 1 and mark <= MAX_TOKEN and token >= 0 and token <= mark
    and granted >= 0 and expires >= 0 and expires < MAX_CLOCK * 2
end

-- A lane that has a record has a mark. Whether somebody's grant stands in its way:
local function stands(standing, expires)
  return now < expires and (standing == 'g' or standing == 'v')
end
local function blocks(r) return stands(r.standing, r.expires) end

-- A lane's record that is a text of its own, an empty one if there is none.
local function lane_from(lane, raw)
  if not raw then
    return { lane = lane, standing = 'n', mark = 0, token = 0, granted = 0, expires = 0,
      owner = NOBODY, member = NOTHING, label = '' }
  end
  if #raw < SIZE then foreign('the record of a lane') end
  local magic, standing, mark, token, granted, expires, owner, member =
    unpack_record(LAYOUT, raw)
  if not is_record(magic, mark, token, granted, expires) then
    foreign('the record of a lane')
  end
  return { lane = lane, standing = standing, mark = mark, token = token, granted = granted,
    expires = expires, owner = owner, member = member, label = sub(raw, SIZE + 1) }
end

-- It is kept until the clock has passed the mark by the retention: whatever mark is dropped
-- is below now - retention ever after.
local function ms(us) return digits(math.ceil(us / 1000) + 1) end
local function keep_lane(r)
  local till = max(now, r.expires, r.mark) + marks
  write('SET', lane_name(r.lane), pack(LAYOUT, 'Q1', r.standing, r.mark, r.token, r.granted,
    r.expires, r.owner, r.member) .. r.label, 'PX', ms(till - now))
end

-- The next token of a lane with this mark, above `after`; nil if they are used up.
local function token_above(mark, after)
  local new = max(math.min(now, MAX_CLOCK), mark + 1, after + 1)
  return new <= MAX_TOKEN and new or nil
end

-- Why this owner is refused: 'a' abandoned, 'r' revoked, or false.
local function tombstone(owner) return call('GET', tomb_name(owner)) end
