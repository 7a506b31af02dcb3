-- Opens a node of a new quorum: writes its birth marker as if its quarantine were
-- over.
--
-- KEYS[1]  the birth marker
-- ARGV     the life in which the node was found empty; when that was, how long it
--          is good for, and the quarantine, in microseconds by this server's clock
--
-- Returns 1; or, and then nothing was written, 0 where there is a marker, 2 in
-- another life, 3 after too long. What a life is, and a marker: see lease.lua.

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local found, good_for = tonumber(ARGV[2]), tonumber(ARGV[3])
local run = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
local data = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')
if (run or '') .. (data or '') ~= ARGV[1] then return 2 end
if now < found or now - found > good_for then return 3 end
local marker = string.format('B1 %s 0 %.0f %s', ARGV[1], now, ARGV[4])
if redis.call('SET', KEYS[1], marker, 'NX') then return 1 end
return 0
