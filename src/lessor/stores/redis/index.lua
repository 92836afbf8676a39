-- The names of all resources that have a record, in order, for lists. After head.lua.

-- Before the records are written: should that fail, a name without a record does no harm.
local function enlist(names)
    if #names > 0 then
        local members = {}
        for _, name in ipairs(names) do
            members[#members + 1] = '0'
            members[#members + 1] = name
        end
        redis.call('ZADD', prefix .. 'index', unpack(members))
    end
end

-- The index doesn't know when Redis forgets a record: for each new name, look at two old ones.
local function strike_off(names)
    if #names > 0 then
        for _, name in ipairs(redis.call('ZRANDMEMBER', prefix .. 'index', math.min(2 * #names, 100))) do
            if redis.call('EXISTS', prefix .. 'r:' .. name) == 0 then
                redis.call('ZREM', prefix .. 'index', name)
            end
        end
    end
end
