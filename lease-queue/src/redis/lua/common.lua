-- What every script of a queue uses.
local function digits(number) return format('%.0f', number) end
local function foreign_text(what)
  return 'FOREIGN ' .. what .. ' of a queue is not what the queue wrote'
end
local function foreign(what) error(foreign_text(what), 0) end

-- Errors of the server are raised as text.
local function call(...)
  local reply = ask(...)
  if type(reply) == 'table' and reply.err then error(reply.err, 0) end
  return reply
end
local function write(...)
  local reply = call(...)
  wrote = true
  return reply
end
-- One command for all of a list, if there is anything in it. Lua passes 8000 values at most: of
-- more there is one for each so many, an even number, since some lists are of pairs.
local AT_ONCE = 4000
local function write_all(command, name, list)
  local all = #list
  for from = 1, all, AT_ONCE do
    write(command, name, unpack(list, from, math.min(from + AT_ONCE - 1, all)))
  end
end
local function add(list, one, other)
  list[#list + 1] = one
  if other then list[#list + 1] = other end
end

local function item_name(id) return items .. id end
local function list_name(group) return base .. ':l:' .. group end
local function lane_name(lane) return base .. ':' .. lane end
local function tomb_name(owner) return base .. ':t:' .. owner end
local function done_name(id) return base .. ':d:' .. id end
local function dedup_name(dedup) return base .. ':u:' .. dedup end
local function id_of(member) return sub(member, 17) end
local function kind_of(lane) return string.byte(lane) end

-- What is not told apart any more, as its time has come.
local function trim()
  local till = digits(now)
  call('ZREMRANGEBYSCORE', delayed, '-inf', till)
  ask('ZREMRANGEBYSCORE', behind, '-inf', till)
  ask('ZREMRANGEBYSCORE', aside, '-inf', till)
end

-- Nothing is lost with it but a wake-up.
local function hint(lane)
  ask(publish, kind_of(lane) == KEY and lane_name(lane) or base, '')
end

-- Runs it and gives its answers, or its error.
local function failed(err)
  if type(err) == 'table' then err = err.err end
  return { wrote and -2 or -1, tostring(err) }
end
local function run(work, ...)
  local fine, answer = pcall(work, ...)
  if fine then return answer end
  return failed(answer)
end
