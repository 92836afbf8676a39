-- Carries out a batch of operations, in order, wholly decided here. After head.lua and table.lua.
--
-- ARGV[3...]  the operations, flat: a letter and its fields
--   A resource id seen_token holder ttl queue notify metadata
--   X the same, then parent parent_token soft grace lock_delay hold_at_least priority queue_limit recover
--   N resource id token ttl                    (renew)
--   L resource id abandon                      (release)
--   H the same, then successor state reserve   (hand over)
--   V resource force token                     (revoke; token '' for any)
--
-- Answers, flat: a number for the kind of outcome, and its fields.
--   1 token ttl · 2 by token remaining position · 3 ttl · 4 reason remaining · 5 free_in · 6 reason · 7 why detail
-- and where there is more to say: 8 token ttl state · 9 by token remaining position (refused) · 10 ttl ended
-- or it is closed: 12 by token remaining position closed · 13 by token remaining position closed (refused)
-- and where there is less: 11 ttl (every one of them was renewed, for the same time)
--
-- Nothing is written before all is decided, so that an error on the way leaves everything as it was.

local TOMBSTONE = 60000000
local MOST_TOMBSTONES = 10000
local TOKEN_LIMIT = 9007199254740992
local KEEP = 60000000 -- how long the record of a free resource is kept
local IN_TAIL = {
    'parent', 'parent_token', 'soft', 'grace', 'lock_delay', 'hold_at_least', 'revoked', 'children', 'kept', 'waiting',
    'state', 'children_ended',
}
local PREFETCHED = 1000
local AHEAD = 3600000000 -- how far ahead the records of children are kept: renewals of the parent don't touch them

local dirty = {}
local unlinked = {} -- children that left their parent
local linked = {} -- children that came to one
local childless = {} -- parents that have none any more
local ended = {} -- the records of children that ended with their parent, and had nothing else to say
local events = {}
local watched -- whether anybody hears of events, once that was asked
local notices = {}
local floor -- the highest token of the namespace, once it was looked at
local minted = false
local out = {}
local at = 0

local function answer(kind, first, second, third, fourth)
    out[at + 1], out[at + 2] = kind, first
    if second == nil then
        at = at + 2
    elseif third == nil then
        out[at + 3] = second
        at = at + 3
    elseif fourth == nil then
        out[at + 3], out[at + 4] = second, third
        at = at + 4
    else
        out[at + 3], out[at + 4], out[at + 5] = second, third, fourth
        at = at + 5
    end
end

local function number(value)
    return string.format('%.0f', value)
end

local function save(entry)
    dirty[entry.resource] = entry
end

local function event(kind, entry, ttl)
    if watched == nil then
        watched = redis.call('PUBSUB', 'NUMSUB', prefix .. 'events')[2] > 0
    end
    if not watched then
        return
    end
    events[#events + 1] = {kind, entry.resource, number(entry.token), entry.holder, number(now), number(ttl)}
end

local function notice(address, summons, resource, id)
    notices[#notices + 1] = {address = address, summons = summons, resource = resource, id = id}
end

-- --- children ----------------------------------------------------------------------------------------------------

-- Get many records by few commands.
local function prefetch(names)
    for first = 1, #names, PREFETCHED do
        local keys, last = {}, math.min(first + PREFETCHED - 1, #names)
        for index = first, last do
            keys[#keys + 1] = prefix .. 'r:' .. names[index]
        end
        for index, packed in ipairs(redis.call('MGET', unpack(keys))) do
            local name = names[first + index - 1]
            fetched[name] = ended[name] or packed
        end
    end
end

-- The names of all that may stand under it, in order, with their records at hand.
local function names_under(resource)
    local names, seen = redis.call('SMEMBERS', prefix .. 'c:' .. resource), linked[resource] or {}
    for index = #names, 1, -1 do
        if seen[names[index]] then
            table.remove(names, index)
        end
    end
    for name in pairs(seen) do
        names[#names + 1] = name
    end
    table.sort(names)
    prefetch(names)
    return names
end

local function children_of(resource, token)
    local found = {}
    for _, name in ipairs(names_under(resource)) do
        local child = load(name)
        if child.parent == resource and child.parent_token == token then
            found[#found + 1] = child
        end
    end
    return found
end

local function link(parent, child)
    linked[parent] = linked[parent] or {}
    linked[parent][child] = true
    if unlinked[parent] then
        unlinked[parent][child] = nil
    end
end

local function unlink(entry)
    local parent = entry.parent
    if parent ~= '' then
        unlinked[parent] = unlinked[parent] or {}
        unlinked[parent][entry.resource] = true
        if linked[parent] then
            linked[parent][entry.resource] = nil
        end
    end
end

-- Keep the records of the children until well after this time; those that have gone are struck off.
local function keep_children(entry, till)
    entry.kept = till + AHEAD
    save(entry)
    local current = {}
    for _, child in ipairs(children_of(entry.resource, entry.token)) do
        if child.id ~= '' then
            current[child.resource] = true
            save(child)
            if child.children then
                keep_children(child, till)
            end
        end
    end
    for _, name in ipairs(redis.call('SMEMBERS', prefix .. 'c:' .. entry.resource)) do
        if not current[name] then
            unlinked[entry.resource] = unlinked[entry.resource] or {}
            unlinked[entry.resource][name] = true
        end
    end
end

-- --- the queue ---------------------------------------------------------------------------------------------------

local function new_waiting()
    return {queue = {}, tombstones = {}}
end

local function place_of(waiting, id)
    for position, waiter in ipairs(waiting.queue) do
        if waiter.id == id then
            return waiter, position
        end
    end
end

local function tidy(entry, keep_waiting)
    local waiting = entry.waiting
    if not waiting then
        return
    end
    waiting.queue = live(waiting)
    for id, till in pairs(waiting.tombstones) do
        if till <= now then
            waiting.tombstones[id] = nil
        end
    end
    if not (keep_waiting or #waiting.queue > 0 or next(waiting.tombstones) or waiting.reservation) then
        entry.waiting = nil
    end
end

-- Never grant this id; with too many of these, the first one is forgotten.
local function bury(tombstones, id)
    tombstones[id] = nil
    local others, first = 0, nil
    for other, till in pairs(tombstones) do
        others = others + 1
        if not first or till < tombstones[first] then
            first = other
        end
    end
    if others >= MOST_TOMBSTONES then
        tombstones[first] = nil
    end
    tombstones[id] = now + TOMBSTONE
end

local function call(entry, waiter)
    if waiter.notify ~= '' then
        notice(waiter.notify, 'reserved', entry.resource, waiter.id)
    end
end

local function reserve(entry, waiting, waiter, start)
    waiting.reservation = {till = start + RESERVATION, id = waiter.id, successor = ''}
    call(entry, waiter)
end

-- Call the first waiter that the resource isn't reserved for: it asks, and so learns when to come by itself.
local function tell_first(entry, waiting)
    for _, waiter in ipairs(waiting.queue) do
        if waiter.expiry > now and not waiter.passed and waiter.id ~= waiting.reservation.id then
            return call(entry, waiter)
        end
    end
end

local function call_next(entry)
    local waiting = entry.waiting
    if not waiting then
        return
    end
    local reservation = waiting.reservation
    if reservation and reservation.till > now then
        if reservation.successor ~= '' then
            tell_first(entry, waiting) -- who would have told the others when that is over has gone
        end
        return
    end
    waiting.reservation = nil
    for _, waiter in ipairs(waiting.queue) do
        if waiter.expiry > now and not waiter.passed then
            -- Closed for a while yet (minimum hold): the turn begins when it opens.
            reserve(entry, waiting, waiter, math.max(now, entry.expiry))
            return
        end
    end
end

-- Let the turns begin now on a resource that was closed for longer by that much, and call whose turn it is.
local function bring_forward(entry, earlier)
    local waiting = entry.waiting
    local reservation = waiting and waiting.reservation
    if not reservation then
        return
    end
    reservation.till = reservation.till - earlier
    local reserved = place_of(waiting, reservation.id)
    if reserved and reserved.expiry > now then
        call(entry, reserved)
    elseif reservation.successor == '' then
        waiting.reservation = nil
    end
end

-- Keep the resource for the successor that its holder has named: the first waiter of that name, or whoever has it.
local function hand_over(entry, to, free_at)
    entry.waiting = entry.waiting or new_waiting()
    local waiting = entry.waiting
    local reservation = {till = free_at + to.reserve, id = '', successor = to.successor, state = to.state}
    waiting.reservation = reservation
    for _, waiter in ipairs(waiting.queue) do
        if waiter.expiry > now and waiter.holder == to.successor then
            reservation.id, reservation.successor = waiter.id, ''
            call(entry, waiter)
            break
        end
    end
    tell_first(entry, waiting)
end

local function leave(entry, id)
    local waiting = entry.waiting
    if not waiting then
        return
    end
    local queue = {}
    for _, waiter in ipairs(waiting.queue) do
        if waiter.id ~= id then
            queue[#queue + 1] = waiter
        end
    end
    waiting.queue = queue
    if waiting.reservation and waiting.reservation.id == id then
        waiting.reservation = nil
    end
end

-- How many would be before one that comes now.
local function turn(queue, priority)
    local position = #queue
    while position > 0 and (queue[position].priority or 0) < priority do
        position = position - 1
    end
    return position
end

-- Answer that somebody has it, that it is about to go to somebody, or that it is closed.
local function answer_held(by, token, remaining, position, refused, closed)
    if closed then
        answer(refused and 13 or 12, by, token, remaining, position)
        at = at + 1
        out[at] = closed
    else
        answer(refused and 9 or 2, by, token, remaining, position)
    end
end

-- Answer that it can't be had yet and, if asked to, keep or refresh the asker's place.
local function wait(entry, op, by, free_at, closed)
    local position, refused = 0, false
    if op.queue then
        entry.waiting = entry.waiting or new_waiting()
        tidy(entry, true)
        local queue = entry.waiting.queue
        local waiter, place = place_of(entry.waiting, op.id)
        if waiter then
            position = place - 1
        else
            position = turn(queue, op.priority)
            refused = op.queue_limit > 0 and #queue >= op.queue_limit
            if not refused then
                waiter = {id = op.id, holder = op.holder, notify = op.notify, since = now}
                if op.priority ~= 0 then
                    waiter.priority = op.priority
                end
                table.insert(queue, position + 1, waiter)
            end
        end
        if waiter then
            waiter.expiry = now + WAITER_LIFE
            waiter.passed = nil
        end
        if by ~= '' then
            save(entry)
        end
    elseif entry.waiting then
        position = turn(live(entry.waiting), op.priority)
    end
    if by == '' and entry.waiting then
        position = math.max(position, 1) -- behind the one that it is reserved for
        save(entry) -- whose turn it is, or the next one to ask might find it otherwise
    end
    answer_held(by, entry.token, free_at - now, position, refused, closed)
end

-- The reservation in force now, on a resource that is free since then: what would have happened had somebody acted.
local function settle(entry, waiting, free_since, showing)
    local reservation = waiting.reservation
    local start = free_since
    if reservation then
        if reservation.till > now and (reservation.successor ~= '' or place_of(waiting, reservation.id)) then
            return reservation
        end
        start = now -- the next one doesn't know that it has run out
        local called = place_of(waiting, reservation.id)
        if called and called.id ~= showing then
            called.passed = true
        end
        waiting.reservation = nil
    end
    for _, waiter in ipairs(waiting.queue) do
        if waiter.id == showing then
            return {till = now + RESERVATION, id = waiter.id, successor = ''}
        end
        if not waiter.passed and waiter.expiry > now then
            if start + RESERVATION > now then
                reserve(entry, waiting, waiter, start)
                return waiting.reservation
            end
            waiter.passed = true
            start = start + RESERVATION
        end
    end
    return nil
end

local function leave_and_call(entry, waiting, id, free_at)
    if now >= free_at then
        settle(entry, waiting, free_at, '')
        local others = {}
        for _, word in ipairs(notices) do
            if word.id ~= id then
                others[#others + 1] = word
            end
        end
        notices = others
    end
    leave(entry, id)
    if now >= free_at or entry.id == '' then
        call_next(entry)
    end
    tidy(entry, false)
    save(entry)
end

-- --- endings -----------------------------------------------------------------------------------------------------

-- End all under a lease that have no queue and nothing under them, and return the others. There may be thousands, and to
-- make an entry of each would take most of the time.
local function end_quiet_children(resource, token, kind)
    local others = {}
    for _, name in ipairs(names_under(resource)) do
        local packed = not entries[name] and fetched[name]
        local record
        if packed then
            local form, minted, _, id, ttl, granted, renewed, renewals, holder, _, _, metadata, rest =
                struct.unpack(HEAD, packed)
            local tail = form == TAILED and cmsgpack.unpack(string.sub(packed, rest)) or {}
            if id ~= '' and tail.parent == resource and tail.parent_token == token and granted <= now
                and not tail.waiting and not tail.children and not tail.hold_at_least and not tail.lock_delay then
                record = struct.pack(
                    HEAD, PLAIN, minted, now, 0, '', ttl, granted, renewed, renewals, #holder, holder, #kind, kind, 0,
                    '', #metadata, metadata
                )
                fetched[name], ended[name] = record, record
                event(kind, {resource = name, token = minted, holder = holder}, 0)
            end
        end
        if not record then
            local child = load(name)
            if child.parent == resource and child.parent_token == token and child.id ~= '' then
                others[#others + 1] = child
            end
        end
    end
    return others
end

-- Let a lease stand alone that ran out at that time, its own expiry considered; its lock delay goes on.
local function orphan(child, ended)
    child.expiry = child.ttl == 0 and ended or math.min(child.expiry, ended)
    child.parent, child.parent_token = nil, nil
    child.grace = nil -- it stood under a lease that is over: no renewal brings it back
    save(child)
end

-- End a live lease, and in the same step whatever stands under it. `to`: who is to have it next, if somebody is named.
local function finish(entry, kind, free_at, to)
    if entry.children then
        for _, child in ipairs(end_quiet_children(entry.resource, entry.token, kind)) do
            local over = expiry_of(child, 0)
            if over <= now and now < free_from(child, over) then
                orphan(child, over)
            else
                finish(child, kind, now)
            end
        end
        childless[entry.resource] = true
        linked[entry.resource] = nil
    end
    unlink(entry)
    entry.parent, entry.parent_token = nil, nil
    entry.id = nil
    entry.expiry = free_at
    entry.ended = kind
    entry.children = nil
    entry.notify = nil
    entry.state = nil
    if to then
        hand_over(entry, to, free_at)
    elseif entry.waiting then
        call_next(entry)
    end
    save(entry)
    event(kind, entry, free_at - now)
end

-- Call the holder whose lease somebody else ends; and count it in all leases above, whose renewal tells of it.
local function tell_of_the_end(entry)
    if entry.notify ~= '' then
        notice(entry.notify, 'revoked', entry.resource, entry.id)
    end
    local below = entry
    while below.parent ~= '' do
        local above = load(below.parent)
        if above.token ~= below.parent_token or above.id == '' then
            return
        end
        above.children_ended = above.children_ended + 1
        save(above)
        below = above
    end
end

-- Renew a live lease no more, so that it ends as promised, and tell its holder.
local function end_at_expiry(entry, expiry)
    tell_of_the_end(entry)
    entry.revoked = true
    if entry.ttl == 0 then
        -- It would last as long as its parent goes on; from here on it has the time that was promised, and no more.
        entry.ttl, entry.expiry = expiry - now, expiry
    end
    save(entry)
    event('revoked', entry, expiry - now)
end

-- What stood under a lease that ran out has ended with it, at that time.
local function expire_children(entry, ended)
    for _, child in ipairs(children_of(entry.resource, entry.token)) do
        if child.id ~= '' then
            orphan(child, ended)
        end
    end
    childless[entry.resource] = true
    linked[entry.resource] = nil
end

-- --- the operations ----------------------------------------------------------------------------------------------

-- Whether the parent may stand above the resource: not under it, and not too deep.
local function refused_parent(op)
    if op.parent == op.resource then
        answer(7, 'itself', '')
        return true
    end
    local above, token, depth = load(op.parent), op.parent_token, 1
    while above.parent ~= '' and above.token == token and above.id ~= '' do
        if depth >= MAX_DEPTH or above.parent == op.resource then
            answer(7, 'levels', '')
            return true
        end
        token = above.parent_token
        above = load(above.parent)
        depth = depth + 1
    end
    return false
end

-- Until when the parent lasts (0: it doesn't), and note there that it has a child.
local function parent_bound(op)
    local parent = load(op.parent)
    if parent.token ~= op.parent_token or parent.id == '' then
        return 0
    end
    local bound = expiry_of(parent, 0)
    if bound <= now then
        return 0
    end
    if not parent.children or parent.kept < bound + KEEP then
        parent.children = true
        parent.kept = bound + AHEAD
        save(parent)
    end
    return bound
end

-- Say that it is theirs, and what the holder before has left for them.
local function answer_granted(token, ttl, state)
    if state == '' then
        answer(1, token, ttl)
    else
        answer(8, token, ttl, state)
    end
end

local function grant(entry, op, ended, state)
    local ttl = op.ttl
    local expiry = now + ttl
    if op.parent then
        local bound = parent_bound(op)
        if bound <= now then
            if entry.waiting then
                save(entry)
            end
            return answer(4, 'expired', 0)
        end
        expiry = ttl == 0 and bound or math.min(expiry, bound)
    end
    if entry.children then
        expire_children(entry, ended)
        entry.children = nil
    end
    if not floor then
        floor = tonumber(redis.call('GET', KEYS[1]) or 0)
    end
    local token = math.max(math.max(entry.token, floor, op.seen) + 1, now)
    if token >= TOKEN_LIMIT then
        if entry.waiting then
            save(entry) -- a reservation that has lapsed is over, also if the clock is set back
        end
        return answer(7, 'token', number(token))
    end
    floor, minted = token, true
    if entry.id ~= '' then
        unlink(entry)
    end
    local resource = entry.resource
    local granted = setmetatable({
        resource = resource, token = token, id = op.id, holder = op.holder, ttl = ttl, expiry = expiry,
        granted = now, renewed = now, waiting = entry.waiting, state = state,
    }, DEFAULTS)
    if op.metadata ~= '' then
        granted.metadata = op.metadata
    end
    if op.notify ~= '' then
        granted.notify = op.notify
    end
    if op.full then
        granted.soft, granted.grace = op.soft, op.grace
        granted.lock_delay, granted.hold_at_least = op.lock_delay, op.hold_at_least
        if op.parent then
            granted.parent, granted.parent_token = op.parent, op.parent_token
            link(op.parent, resource)
        end
    end
    if granted.waiting then
        leave(granted, op.id)
        granted.waiting.reservation = nil
        tidy(granted, false)
    end
    entries[resource] = granted
    save(granted)
    event('granted', granted, expiry - now)
    answer_granted(token, expiry - now, state)
end

local function acquire(entry, op)
    if op.parent and refused_parent(op) then
        return
    end
    local waiting = entry.waiting
    if waiting and (waiting.tombstones[op.id] or 0) > now then
        return answer(4, 'released', 0)
    end
    local expiry = expiry_of(entry, 0)
    local free_at = free_from(entry, expiry)
    if entry.id ~= '' then
        if now < expiry then
            if entry.id == op.id then
                return answer_granted(entry.token, expiry - now, entry.state)
            end
            if op.recover and entry.soft > 0 and entry.soft <= now - entry.granted and not entry.revoked then
                end_at_expiry(entry, expiry)
            end
            return wait(entry, op, entry.holder, expiry)
        end
        if entry.id == op.id then
            -- Its own grant has run out: a request that was that late must not start a second turn by itself.
            return answer(4, 'expired', 0)
        end
    end
    if now < free_at then
        return wait(entry, op, entry.holder, free_at, closed_by(entry))
    end
    local state = ''
    if waiting then
        local reservation = settle(entry, waiting, free_at, op.id)
        if reservation then
            local ours = reservation.id == op.id
            if reservation.successor ~= '' then
                ours = reservation.successor == op.holder
            end
            if not ours then
                return wait(entry, op, '', reservation.till)
            end
            state = reservation.state or ''
        end
    end
    return grant(entry, op, expiry, state)
end

local function in_grace(entry, expiry)
    if now >= expiry + entry.grace or entry.parent ~= '' then
        return false
    end
    local waiting = entry.waiting
    if waiting then
        if waiting.reservation then
            return false
        end
        for _, waiter in ipairs(waiting.queue) do
            if waiter.expiry > now then
                return false
            end
        end
    end
    return true
end

local function renew(entry, id, token, ttl)
    if entry.id ~= id then
        if entry.token == token and entry.ended ~= '' then
            return answer(4, entry.ended, 0)
        end
        return answer(4, entry.token > token and 'taken' or 'expired', 0)
    end
    local expiry = expiry_of(entry, 0)
    if now >= expiry and not in_grace(entry, expiry) then
        return answer(4, 'expired', 0)
    end
    if entry.revoked then
        return answer(4, 'revoked', math.max(0, expiry - now))
    end
    local extended = math.max(entry.expiry, now + ttl) -- never shortened: an earlier promise may be relied upon
    if entry.parent ~= '' then
        local parent = load(entry.parent)
        local bound = expiry_of(parent, 0)
        if parent.token ~= entry.parent_token or bound <= now then
            return answer(4, 'expired', 0)
        end
        extended = entry.ttl == 0 and bound or math.min(extended, bound)
    end
    entry.expiry = extended
    if entry.ttl ~= 0 then
        entry.ttl = math.max(entry.ttl, ttl)
    end
    entry.renewed = now
    entry.renewals = entry.renewals + 1
    if entry.children and entry.kept < extended + KEEP then
        keep_children(entry, extended)
    end
    save(entry)
    if entry.children_ended == 0 then
        answer(3, extended - now)
    else
        answer(10, extended - now, entry.children_ended)
    end
end

-- Take a waiter out of the queue, if it is there: who was granted it meanwhile isn't.
local function drop(entry, id)
    local waiting = entry.waiting
    if not (waiting and place_of(waiting, id)) then
        return false
    end
    leave_and_call(entry, waiting, id, free_from(entry, expiry_of(entry, 0)))
    return true
end

local function release(entry, id, abandon, to)
    local expiry = expiry_of(entry, 0)
    if abandon then
        -- Whatever has become of the id so far: a copy of the request that asked for it may still be on its way.
        entry.waiting = entry.waiting or new_waiting()
        bury(entry.waiting.tombstones, id)
        tidy(entry, false)
    end
    if entry.id == id and now < expiry then
        local free_at = entry.hold_at_least > 0 and math.max(now, entry.granted + entry.hold_at_least) or now
        finish(entry, 'released', free_at, to)
        return answer(5, free_at - now)
    end
    if drop(entry, id) then
        return answer(6, 'was waiting')
    end
    if entry.id == id then
        entry.grace = nil -- it is not wanted any more: a renewal still on its way must not bring it back
        save(entry)
    elseif abandon then
        save(entry)
    end
    answer(6, 'not held')
end

-- Open a resource that nobody holds. A lock delay protects what can't check tokens: it takes force to end it.
local function reopen(entry, force, free_at)
    local closed = closed_by(entry)
    if closed == 'lock_delay' and not force then
        return answer_held(entry.holder, entry.token, free_at - now, 0, false, closed)
    end
    bring_forward(entry, free_at - now)
    finish(entry, 'revoked', now)
    answer(5, 0)
end

local function revoke(entry, force, token)
    local expiry = expiry_of(entry, 0)
    local free_at = free_from(entry, expiry)
    if now >= free_at or (token and token ~= entry.token) then
        return answer(6, 'not held')
    end
    if entry.id == '' or now >= expiry then
        return reopen(entry, force, free_at)
    end
    if force then
        tell_of_the_end(entry)
        finish(entry, 'revoked', now)
        return answer(5, 0)
    end
    end_at_expiry(entry, expiry)
    answer(5, expiry - now)
end

-- --- after the decisions -----------------------------------------------------------------------------------------

-- Tell those concerned. A waiter that nobody hears is dead: it leaves the queue, and the next one is called.
local function deliver()
    while #notices > 0 do
        local batch = notices
        notices = {}
        for _, word in ipairs(batch) do
            local message = cjson.encode({word.summons, word.resource, word.id})
            local heard = redis.call('PUBLISH', prefix .. 'n:' .. word.address, message)
            if heard == 0 and word.summons == 'reserved' then
                drop(load(word.resource), word.id)
            end
        end
    end
    if #events > 0 then
        redis.call('PUBLISH', prefix .. 'events', cjson.encode(events))
    end
end

-- When the record has nothing left to say but its token, which the namespace's counter knows too.
local function dead_at(entry)
    local over = math.max(entry.expiry, entry.granted) + entry.lock_delay + entry.grace
    if entry.parent ~= '' and entry.id ~= '' and entry.ttl == 0 then
        over = math.max(over, load(entry.parent).kept) -- it lasts as long as its parent is renewed
    end
    local waiting = entry.waiting
    if waiting then
        if waiting.reservation then
            over = math.max(over, waiting.reservation.till)
        end
        for _, waiter in ipairs(waiting.queue) do
            over = math.max(over, waiter.expiry)
        end
        for _, till in pairs(waiting.tombstones) do
            over = math.max(over, till)
        end
    end
    return over
end

local function milliseconds_to(time)
    return number(math.max(1, math.ceil((time - now) / 1000)))
end

local function packed(entry)
    local tail
    for _, name in ipairs(IN_TAIL) do
        local value = entry[name]
        if value ~= DEFAULTS.__index[name] then
            tail = tail or {}
            tail[name] = value
        end
    end
    local head = struct.pack(
        HEAD, tail and TAILED or PLAIN, entry.token, entry.expiry, #entry.id, entry.id, entry.ttl, entry.granted,
        entry.renewed, entry.renewals, #entry.holder, entry.holder, #entry.ended, entry.ended, #entry.notify,
        entry.notify, #entry.metadata, entry.metadata
    )
    return tail and head .. cmsgpack.pack(tail) or head
end

-- Names, children and the counter first, and the records last. In a Cluster, a slot that is being moved away refuses
-- keys that it has given away or never had. The records have all been read, so they can be written, too; and what
-- was written before such a refusal does no harm without them.
local function write()
    local fresh = {}
    for resource in pairs(dirty) do
        if not stored[resource] then
            fresh[#fresh + 1] = resource
        end
    end
    enlist(fresh)
    for parent in pairs(childless) do
        redis.call('DEL', prefix .. 'c:' .. parent)
    end
    for parent, names in pairs(unlinked) do
        for name in pairs(childless[parent] and {} or names) do
            redis.call('SREM', prefix .. 'c:' .. parent, name)
        end
    end
    for parent, names in pairs(linked) do
        for name in pairs(names) do
            redis.call('SADD', prefix .. 'c:' .. parent, name)
        end
        if next(names) then -- a set that was empty for a while had gone, and when it goes with it
            redis.call('PEXPIRE', prefix .. 'c:' .. parent, milliseconds_to(load(parent).kept + KEEP))
        end
    end
    if minted then
        redis.call('SET', KEYS[1], number(floor))
    end
    local kept = milliseconds_to(now + KEEP)
    for resource, record in pairs(ended) do
        redis.call('SET', prefix .. 'r:' .. resource, record, 'PX', kept)
    end
    for resource, entry in pairs(dirty) do
        local life = milliseconds_to(math.max(now, dead_at(entry)) + KEEP)
        redis.call('SET', prefix .. 'r:' .. resource, packed(entry), 'PX', life)
    end
    for resource, entry in pairs(dirty) do
        if entry.children then
            redis.call('PEXPIRE', prefix .. 'c:' .. resource, milliseconds_to(entry.kept + KEEP))
        end
    end
    strike_off(fresh)
end

local field = 3
while field <= #ARGV do
    local letter = ARGV[field]
    local resource = ARGV[field + 1]
    local entry = load(resource)
    if letter == 'A' or letter == 'X' then
        local op = {
            resource = resource, id = ARGV[field + 2], seen = tonumber(ARGV[field + 3]), holder = ARGV[field + 4],
            ttl = tonumber(ARGV[field + 5]), queue = ARGV[field + 6] == '1', notify = ARGV[field + 7],
            metadata = ARGV[field + 8], priority = 0, queue_limit = 0,
        }
        field = field + 9
        if letter == 'X' then
            op.full = true
            if ARGV[field] ~= '' then
                op.parent, op.parent_token = ARGV[field], tonumber(ARGV[field + 1])
            end
            op.soft, op.grace = tonumber(ARGV[field + 2]), tonumber(ARGV[field + 3])
            op.lock_delay, op.hold_at_least = tonumber(ARGV[field + 4]), tonumber(ARGV[field + 5])
            op.priority, op.queue_limit = tonumber(ARGV[field + 6]), tonumber(ARGV[field + 7])
            op.recover = ARGV[field + 8] == '1'
            field = field + 9
        end
        acquire(entry, op)
    elseif letter == 'N' then
        renew(entry, ARGV[field + 2], tonumber(ARGV[field + 3]), tonumber(ARGV[field + 4]))
        field = field + 5
    elseif letter == 'L' then
        release(entry, ARGV[field + 2], ARGV[field + 3] == '1')
        field = field + 4
    elseif letter == 'H' then
        release(entry, ARGV[field + 2], ARGV[field + 3] == '1', {
            successor = ARGV[field + 4], state = ARGV[field + 5], reserve = tonumber(ARGV[field + 6]),
        })
        field = field + 7
    else
        revoke(entry, ARGV[field + 2] == '1', tonumber(ARGV[field + 3]))
        field = field + 4
    end
end
deliver()
write()
return out
