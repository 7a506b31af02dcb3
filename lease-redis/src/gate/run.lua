local refused = lease_admit(KEYS[1], ARGV[1], ARGV[2] ~= '' and ARGV[2] or nil)
if refused then return refused end
-- Errors are found here and sent as text: inside an answer, some drivers would
-- take one for an error of the whole call and repeat it.
local function failure(value, depth)
  if type(value) ~= 'table' then return nil end
  if depth > 1000 then return 'ERR the answer is nested too deeply' end
  local text = rawget(value, 'err')
  if type(text) == 'string' then return text end
  for _, part in pairs(value) do
    local found = failure(part, depth + 1)
    if found then return found end
  end
  return nil
end
local ok, failed, value = pcall(function()
  local keys, args = {}, {}
  for i = 2, #KEYS do keys[i - 1] = KEYS[i] end
  for i = 3, #ARGV do args[i - 2] = ARGV[i] end
  local value = run(keys, args)
  return failure(value, 1), value
end)
if not ok then
  if type(failed) == 'table' then failed = rawget(failed, 'err') end
  if type(failed) ~= 'string' then failed = 'ERR the script raised an error without words' end
end
if failed then return {'failed', failed} end
return {'ran', value}
