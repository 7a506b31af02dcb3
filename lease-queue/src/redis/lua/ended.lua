-- Claims that are not live any more.
local done_prefix = base .. ':d:'
local function settled_name(id, owner, token)
  return base .. ':s:' .. id .. ':' .. owner .. ':' .. digits(token)
end

-- What is said of a claim that is not live. `own` is whether its lane's last grant is this
-- claim, of this standing.
local function not_live(own, standing, last_token, what, id, owner, token)
  local done_owner, done_token = '', 0
  local before = own and standing == 's'
  if id then
    local done = call('GET', done_prefix .. id)
    if done then
      done_owner, done_token = sub(done, 1, 32), tonumber(sub(done, 33)) or 0
    end
    before = before or (done_owner == owner and done_token == token)
      or call('EXISTS', settled_name(id, owner, token)) == 1
  end
  if before then
    if what == 'E' then return { 0, 'r' } end
    return 2
  end
  if own then
    if standing == 'g' then return { 0, 'e' } end
    if standing == 'v' then return { 0, 'v' } end
    return { 0, 'r' }
  end
  local why = tombstone(owner)
  if why then return { 0, why == 'r' and 'v' or 'r' } end
  return { 0, max(last_token, done_token) > token and 't' or 'u' }
end
