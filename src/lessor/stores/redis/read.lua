-- Who holds what, and what is closed. After head.lua and table.lua.
--
-- ARGV[3]  'names' and then the resources; or 'scan', the prefix, the name to go on after ('' to begin), how many; or
--          'waiters' and a resource
--
-- Answers, flat, for each: 0, or 1 and the record. A scan begins with the name to go on after, '' at the end. A waiter
-- is its name, since when it waits, and its priority.

local out = {}

local function show_queue(queue)
    for _, waiter in ipairs(queue) do
        out[#out + 1] = waiter.holder
        out[#out + 1] = waiter.since
        out[#out + 1] = waiter.priority or 0
    end
end

local function show(entry)
    local expiry, closed = expiry_of(entry, 0), ''
    if entry.id == '' or now >= expiry then
        expiry, closed = free_from(entry, expiry), closed_by(entry)
        if now >= expiry then
            out[#out + 1] = 0
            return
        end
    end
    local held = closed == ''
    local queue, reserved_for = {}, ''
    local waiting = entry.waiting
    if waiting then
        local reservation = waiting.reservation
        local reserved = reservation and reservation.till > now
        if reserved then
            reserved_for = reservation.successor
        end
        queue = live(waiting)
        for _, waiter in ipairs(queue) do
            if reserved and reserved_for == '' and waiter.id == reservation.id then
                reserved_for = waiter.holder
            end
        end
    end
    for _, value in ipairs({
        1, entry.resource, entry.holder, entry.token, entry.ttl, expiry - now, entry.granted, entry.renewed,
        entry.renewals, held and entry.metadata or '', held and entry.parent or '', entry.parent_token, held and entry.soft or 0,
        held and entry.grace or 0, entry.lock_delay, entry.hold_at_least, held and entry.revoked and 1 or 0,
        reserved_for, closed, #queue,
    }) do
        out[#out + 1] = value
    end
    show_queue(queue)
end

if ARGV[3] == 'names' then
    for at = 4, #ARGV do
        show(load(ARGV[at]))
    end
    return out
end

if ARGV[3] == 'waiters' then
    local waiting = load(ARGV[4]).waiting
    show_queue(waiting and live(waiting) or {})
    return out
end

local wanted, after, most = ARGV[4], ARGV[5], tonumber(ARGV[6])
local from = after == '' and '[' .. wanted or '(' .. after
-- No name has the byte 255, which UTF-8 doesn't use: this is above all names with that prefix.
local names = redis.call('ZRANGEBYLEX', prefix .. 'index', from, '[' .. wanted .. '\255', 'LIMIT', 0, most)
out[1] = #names == most and names[#names] or ''
for _, name in ipairs(names) do
    local entry = load(name)
    if stored[name] then
        show(entry)
    end
end
return out
