-- The next places in the queue.
local function places(count)
  local last = ask('INCRBY', base .. ':n', digits(count))
  if type(last) == 'table' then
    if string.find(last.err, 'not an integer') then foreign('the counter') end
    error(last.err, 0)
  end
  wrote = true
  if not (last >= count and last < MAX_CLOCK) then foreign('the counter') end
  return last - count
end
local function place(number) return format('%016.0f', number) end
