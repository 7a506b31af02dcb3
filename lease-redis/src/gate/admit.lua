local function lease_admit(mark, token, forget_ms)
  local function number(text)
    if type(text) ~= 'string' or #text > 16 or not string.find(text, '^[1-9]%d*$') then
      return nil
    end
    local n = tonumber(text)
    if n <= 9007199254740991 then return n end
    return nil
  end
  local presented = number(token)
  if not presented then
    return {err = 'ERR the token shown is not a fencing token'}
  end
  local found = redis.pcall('GET', mark)
  if type(found) == 'table' then return found end
  if found then
    local admitted = number(found)
    if not admitted then
      return {err = 'FOREIGN the value at the name of the gate is not a fencing token'}
    end
    -- The text as it is: a number put into a text would lose digits.
    if admitted > presented then return {err = 'STALE ' .. found} end
  end
  if forget_ms then
    redis.call('SET', mark, token, 'PX', forget_ms)
  else
    redis.call('SET', mark, token)
  end
  return nil
end
