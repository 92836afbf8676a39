-- One operation on what others hold or queue up for, who want nothing else that is special: one more comes, a turn goes
-- from one to the next, its holder renews. Whatever isn't so simple goes on to apply.lua, with nothing changed. After
-- quick.lua.

-- The queue of a record, and until when it counts. Nothing where the record has more to it, or the queue is to be tidied up.
local function queue_of(tail)
    local waiting, till = tail.waiting, now
    if not waiting or next(tail, next(tail)) or next(waiting.tombstones) then
        return nil
    end
    for _, waiter in ipairs(waiting.queue) do
        if waiter.expiry <= now then
            return nil
        end
        till = math.max(till, waiter.expiry)
    end
    return waiting, till
end

-- Answer that somebody has it and, if asked to, keep or refresh the asker's place at the end of the queue.
local function come_later(head, waiting, till, token, expiry, granted, holder)
    local queue, id = waiting.queue, ARGV[5]
    local position = #queue
    if waiting.reservation or (position > 0 and (queue[position].priority or 0) < 0) then
        return nil
    end
    if ARGV[9] == '1' then
        local place
        for index, waiter in ipairs(queue) do
            if waiter.id == id then
                place, position = waiter, index - 1
            end
        end
        if not place then
            place = {id = id, holder = ARGV[7], notify = ARGV[10], since = now}
            queue[position + 1] = place
        end
        place.expiry, place.passed = now + WAITER_LIFE, nil
        local record = string.char(TAILED) .. string.sub(head, 2) .. cmsgpack.pack({waiting = waiting})
        local life = KEPT + math.ceil((math.max(till, place.expiry, expiry, granted) - now) / 1000)
        redis.call('SET', prefix .. 'r:' .. ARGV[4], record, 'PX', string.format('%.0f', life))
    end
    return {2, holder, token, expiry - now, position}
end

-- Keep the resource for the first in the queue, and call it; false where nobody hears, which changes nothing.
local function call_first(waiting)
    local first = waiting.queue[1]
    if waiting.reservation or not first or first.passed or first.notify == '' then
        return false
    end
    local word = cjson.encode({'reserved', ARGV[4], first.id})
    if redis.call('PUBLISH', prefix .. 'n:' .. first.notify, word) == 0 then
        return false
    end
    waiting.reservation = {till = now + RESERVATION, id = first.id, successor = ''}
    return true
end

-- Take the first out of the queue, if the asker is that, and the resource is kept for it.
local function come_in(waiting)
    local first, reservation = waiting.queue[1], waiting.reservation
    if not first or first.id ~= ARGV[5] or not reservation or reservation.id ~= first.id or reservation.till <= now
        or reservation.successor ~= '' or (reservation.state or '') ~= '' then
        return false
    end
    table.remove(waiting.queue, 1)
    waiting.reservation = nil
    return true
end

local function take_turns()
    local form, before, expiry, owner, _, granted, _, _, keeper, _, _, _, rest = struct.unpack(HEAD, disputed)
    local head, waiting, till = disputed, {queue = {}, tombstones = {}}, now
    if form == TAILED then
        waiting, till = queue_of(cmsgpack.unpack(string.sub(disputed, rest)))
        head = string.char(PLAIN) .. string.sub(disputed, 2, rest - 1)
    end
    if not waiting then
        return nil
    end
    if letter == 'A' and owner ~= '' then
        if owner == ARGV[5] or now >= expiry or keeper == '' then
            return nil
        end
        return come_later(head, waiting, till, before, expiry, granted, keeper)
    end
    -- Without its queue, the record is decided about as if nobody waited.
    local record, life, time, happened, token, holder = decide(3, head, floor)
    if not record or (letter == 'N' and #waiting.queue == 0) or (letter == 'L' and not call_first(waiting))
        or (letter == 'A' and not come_in(waiting)) then
        return nil
    end
    if #waiting.queue > 0 then
        record = string.char(TAILED) .. string.sub(record, 2) .. cmsgpack.pack({waiting = waiting})
    end
    if waiting.reservation then
        till = math.max(till, waiting.reservation.till)
    end
    life = math.max(life, KEPT + math.ceil((till - now) / 1000))
    return carry_out(prefix .. 'r:' .. ARGV[4], record, life, time, happened, token, holder)
end

if disputed then
    local done = take_turns()
    if done then
        return done
    end
end
