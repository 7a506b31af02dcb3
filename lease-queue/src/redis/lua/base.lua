-- What every script of a queue begins with: values alone, which what follows finds at no
-- cost. How it is all laid out stands on the page `docs/redis.md`.
--
-- Before this text stand the settings: the retentions of marks and of tombstones, in
-- microseconds, and the command that publishes.
--
-- KEYS[1]  the queue's birth marker, which begins all of its names, and is its channel
-- ARGV     the operation's arguments. Identities of items and owners are 32
--          hexadecimal digits; a lane is a letter, a colon and its name.
--
-- Returns an array of answers, each a number or an array. { -1, text } is an error, and
-- nothing was changed; { -2, text } is one after something was.
--
-- Numbers are never made text by '..', which would write 1.796e+15.

local MAX_TOKEN, MAX_CLOCK = 9007199254740991, 4503599627370496
-- An item's record: 'Q1', whether it is living ('l') or dead ('d'), place, when it was put,
-- when it may be claimed, attempts; and then, if it was ever granted or fenced, the standing
-- of its own lane (g granted, s settled, r released, v revoked, n no grant yet), mark, token,
-- granted, expires, its last owner; and the label. Of an item in a group it is the group's
-- lane that counts, and of all this the owner alone is looked at.
local FRESH, FRESH_SIZE = '<c2c1c16ddd', 43
local GRANTED, GRANTED_SIZE = '<c2c1c16dddc1ddddc32', 108
-- Any other lane's record: 'Q1', its standing, mark, token, granted, expires; the owner, the
-- item with its place, the label.
local LAYOUT, SIZE = '<c2c1ddddc32c48', 115
local NOBODY, NOTHING = string.rep('0', 32), string.rep('0', 48)

-- As locals they are found at once.
local ask, pack, unpack_record, sub, format, max, error = redis.pcall, struct.pack,
  struct.unpack, string.sub, string.format, math.max, error
local unpack, tonumber, type, pcall = unpack, tonumber, type, pcall

local base = KEYS[1]
local due, living, dead = base .. ':due', base .. ':living', base .. ':dead'
local delayed, behind, aside = base .. ':delayed', base .. ':behind', base .. ':aside'
local owners = base .. ':owners'
local items = base .. ':m:'
local wrote = false
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local ITEM, KEY = 105, 107
