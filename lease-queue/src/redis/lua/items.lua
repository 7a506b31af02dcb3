-- Items, by their records.
-- What an item's record says, which is the record of its own lane as well. Nothing at all
-- if it is not one.
local function read_item(raw)
  local size = raw and #raw or 0
  local magic, life, place, put, visible, attempts
  local standing, mark, token, granted, expires, owner = 'n', 0, 0, 0, 0, NOBODY
  if size >= GRANTED_SIZE then
    magic, life, place, put, visible, attempts, standing, mark, token, granted, expires, owner =
      unpack_record(GRANTED, raw)
    if not is_record(magic, mark, token, granted, expires) then return nil end
  elseif size == FRESH_SIZE then
    magic, life, place, put, visible, attempts = unpack_record(FRESH, raw)
  end
  if magic == 'Q1' and (life == 'l' or life == 'd') and put >= 0 and visible >= 0
    and attempts >= 0 and attempts < 4294967296 then
    return life, place, put, visible, attempts, standing, mark, token, granted, expires, owner
  end
end
local function label_of(raw) return sub(raw, GRANTED_SIZE + 1) end

-- The record of an item that is living, and was granted or fenced.
local function granted_item(member, put, visible, attempts, standing, mark, token, granted,
  expires, owner, label)
  return pack(GRANTED, 'Q1', 'l', member, put, visible, attempts, standing, mark, token, granted,
    expires, owner) .. label
end
