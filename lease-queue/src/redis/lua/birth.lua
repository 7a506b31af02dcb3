-- Since when there is the queue, noted when it is new.
local function born()
  local marker = call('GET', base)
  if not marker then
    -- True whatever becomes of the rest.
    call('SET', base, 'Q1 ' .. digits(now))
    return now
  end
  local first = string.match(marker, '^Q1 (%d+)$')
  if not first then foreign('the birth marker') end
  return tonumber(first)
end

-- What is known of the mark of a lane without one: it was never used, or its mark was
-- dropped, and every mark that was ever dropped is below now - retention. None was in a
-- queue that is younger than that.
local function floor()
  local first = born()
  -- A queue from the future is as old as can be: the clock stepped back.
  if first <= now and now - first <= marks then return 0 end
  return max(0, now - marks)
end
