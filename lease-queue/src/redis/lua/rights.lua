-- What the user may not do of all that these scripts do; { 0 } from a server that cannot
-- tell (before version 7).
return { run(function()
  if not redis.acl_check_cmd then return { 0 } end
  local a = base
  local all = {
    { 'GET', a }, { 'SET', a, '' }, { 'DEL', a }, { 'EXISTS', a }, { 'PTTL', a },
    { 'PEXPIRE', a, '1' }, { 'INCRBY', a, '1' }, { 'HGET', a, 'f' }, { 'HMGET', a, 'f' },
    { 'MGET', a },
    { 'HSET', a, 'f', '' }, { 'HDEL', a, 'f' }, { 'HSTRLEN', a, 'f' }, { 'LRANGE', a, '0', '1' },
    { 'LLEN', a }, { 'LREM', a, '1', '' }, { 'RPUSH', a, '' }, { 'SADD', a, '' },
    { 'SMEMBERS', a }, { 'SREM', a, '' }, { 'ZADD', a, '0', '' }, { 'ZCARD', a },
    { 'ZCOUNT', a, '0', '0' }, { 'ZRANGE', a, '0', '0' }, { 'ZRANGEBYLEX', a, '-', '+' },
    { 'ZRANGEBYSCORE', a, '0', '0' }, { 'ZREM', a, '' }, { 'ZREMRANGEBYSCORE', a, '0', '0' },
    { publish, a, '' },
  }
  local missing = { 1 }
  for _, command in ipairs(all) do
    if not redis.acl_check_cmd(unpack(command)) then missing[#missing + 1] = command[1] end
  end
  return missing
end) }
