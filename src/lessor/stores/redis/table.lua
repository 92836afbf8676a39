-- The records of one namespace as a table, and how long a lease lasts. After head.lua.
-- The meaning of every rule here and in apply.lua is that of lessor/core/rules.py and queue.py, tested against them.

local MAX_DEPTH = 8

-- What an entry has where nobody said otherwise. No id: nobody can renew it.
local DEFAULTS = {__index = {
    token = 0, id = '', holder = '', ttl = 0, expiry = 0, granted = 0, renewed = 0, renewals = 0, metadata = '',
    notify = '', parent = '', parent_token = 0, soft = 0, grace = 0, lock_delay = 0, hold_at_least = 0, ended = '',
    kept = 0, state = '', children_ended = 0,
}}

local entries = {} -- by resource: what this call has looked at
local stored = {} -- by resource: whether Redis has a record of it

local function load(resource)
    local entry = entries[resource]
    if entry then
        return entry
    end
    local packed = fetched[resource]
    if packed == nil then
        packed = redis.call('GET', prefix .. 'r:' .. resource)
    end
    entry = {}
    if packed then
        stored[resource] = true
        local head = {struct.unpack(HEAD, packed)}
        if head[1] == TAILED then
            entry = cmsgpack.unpack(string.sub(packed, head[13]))
        end
        entry.token, entry.expiry, entry.id, entry.ttl = head[2], head[3], head[4], head[5]
        entry.granted, entry.renewed, entry.renewals, entry.holder = head[6], head[7], head[8], head[9]
        entry.ended, entry.notify, entry.metadata = head[10], head[11], head[12]
    end
    entry.resource = resource
    setmetatable(entry, DEFAULTS)
    entries[resource] = entry
    return entry
end

-- When the lease really ends: its own expiry or, if sooner, the end of its parent.
local function expiry_of(entry, depth)
    if entry.parent == '' or entry.id == '' or depth > MAX_DEPTH then
        return entry.expiry
    end
    local parent = load(entry.parent)
    if parent.token ~= entry.parent_token or parent.id == '' then
        -- Ending a lease ends its children in the same step, so Redis has forgotten this parent: long over.
        return 0
    end
    local bound = expiry_of(parent, depth + 1)
    if entry.ttl == 0 then
        return bound
    end
    return math.min(entry.expiry, bound)
end

-- When others may acquire what nobody holds; `expiry` is the effective one. An id: then it has run out.
local function free_from(entry, expiry)
    return entry.id == '' and expiry or expiry + entry.lock_delay
end

-- What keeps everybody out of a resource that nobody holds and that isn't free yet.
local function closed_by(entry)
    return entry.id == '' and 'hold_at_least' or 'lock_delay'
end

-- The waiters that still count, in the order of their turns.
local function live(waiting)
    local queue = {}
    for _, waiter in ipairs(waiting.queue) do
        if waiter.expiry > now then
            queue[#queue + 1] = waiter
        end
    end
    return queue
end
