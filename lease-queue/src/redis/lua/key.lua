-- Claims a key. ARGV: owner, TTL in microseconds, label, the key, its rule (n next, e
-- exactly), the rule's number, and for how many microseconds its place in the line lasts
-- if it waits ('0' if it does not).
return { run(function()
  local owner, ttl, label, key = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]
  local exactly, number, lasts = ARGV[5] == 'e', tonumber(ARGV[6]), tonumber(ARGV[7])
  local lane = 'k:' .. key
  local r = lane_from(lane, call('GET', lane_name(lane)))
  local why = tombstone(owner)
  if why then return { why == 'r' and 4 or 3 } end
  if blocks(r) then
    if r.owner ~= owner then
      if lasts > 0 then wait_in_line(key, owner, label, lasts) end
      return { 0, r.token, math.max(0, now - r.granted), r.expires - now, r.label }
    end
    if r.standing == 'v' then return { 4 } end
    if exactly then
      if number < r.mark then return { 2, r.mark } end
      r.token, r.mark = number, number
    end
    -- A live claim is never shortened.
    r.expires = math.max(r.expires, now + ttl)
    note_owner(owner, lane, ttl)
    keep_lane(r)
    return { 1, r.token }
  end
  local known = r.mark
  if known == 0 then known = floor() end
  local token
  if exactly then
    if number <= known then return { 2, known } end
    token = number
  else
    token = token_above(known, number)
    if not token then return { 6 } end
  end
  -- Free since then, however it came to be.
  local out, line = out_of_turn(key, owner, label, lasts, r.expires)
  if out then
    if lasts > 0 or known < 1 then return { 7, out[1], out[2] } end
    return { 0, known, out[3], out[2], out[4] }
  end
  if line then is_served(key, owner) end
  local answer, last = { 1, token }, nil
  if r.standing == 'g' or r.standing == 'v' then
    answer, last = { 1, token, r.token, r.label }, r.owner
  end
  local known_before = r.mark > 0
  if not known_before then look_at_keys() end
  -- First, so that who abandons the owner finds it, wherever this ends.
  note_owner(owner, lane, ttl)
  r.standing, r.mark, r.token, r.granted, r.expires = 'g', token, token, now, now + ttl
  r.owner, r.label = owner, label
  keep_lane(r)
  if not known_before then note_key(key) end
  if last and last ~= owner then disown(last, lane, one_of(last)) end
  return answer
end) }
