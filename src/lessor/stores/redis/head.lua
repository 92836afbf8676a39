-- What both scripts begin with: which namespace, what time it is, and how a record is written down.
--
-- KEYS[1]  the namespace's token counter; all other keys share its hash tag, and so its slot
-- ARGV[1]  what the namespace's keys start with
-- ARGV[2]  '' or, in tests, the time to use instead of the server's
--
-- Times are microseconds since 1970. They and tokens stay below 2^53: a Lua number is a double, and nanoseconds would
-- not be exact. A number becomes text by '%.0f' only, since Lua's own way rounds to 14 digits.

local prefix = ARGV[1]
local now
if ARGV[2] == '' then
    local time = redis.call('TIME')
    now = time[1] * 1000000 + time[2]
else
    now = tonumber(ARGV[2])
end

-- A record has a head of fixed layout, and some have a tail: a MessagePack map of what most leases don't need.
-- The head: PLAIN or TAILED, token, expiry, id, ttl, granted, renewed, renewals, holder, ended, notify, metadata.
local PLAIN, TAILED = 1, 2
local HEAD = '<BddHc0ddddHc0Bc0Hc0I4c0'
local fetched = {} -- by resource: its record as Redis has it, or false
local RESERVATION = 100000 -- for how long a resource is kept for the one whose turn it is
local WAITER_LIFE = 6000000 -- for how long a waiter keeps its place without showing up
