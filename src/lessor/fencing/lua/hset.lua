-- One field at a time: Lua can't hand over thousands of arguments at once.
local added = 0
for at = 1, #ARGV, 2 do
    added = added + redis.call('HSET', KEYS[1], ARGV[at], ARGV[at + 1])
end
return added
