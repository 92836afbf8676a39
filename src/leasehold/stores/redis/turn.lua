-- One operation on what others queue up for, who want nothing else that is special: mostly a turn that goes from one to
-- the next, by a release that calls the first of them, and its acquire. Whatever isn't so simple goes on to apply.lua,
-- with nothing changed. After quick.lua.

local function pass_on()
    local rest = select(13, struct.unpack(HEAD, disputed))
    local tail = cmsgpack.unpack(string.sub(disputed, rest))
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
    -- Without its queue it is decided about as if there were none.
    local head = string.char(PLAIN) .. string.sub(disputed, 2, rest - 1)
    local record, life, time, happened, token, holder = decide(3, head, floor)
    if not record then
        return nil
    end
    local reservation = waiting.reservation
    if letter == 'L' then
        local first = waiting.queue[1]
        if reservation or not first or first.passed or first.notify == '' then
            return nil
        end
        local word = cjson.encode({'reserved', ARGV[4], first.id})
        if redis.call('PUBLISH', prefix .. 'n:' .. first.notify, word) == 0 then
            return nil -- nobody heard it, so it changes nothing
        end
        waiting.reservation = {till = now + RESERVATION, id = first.id, successor = ''}
        till = math.max(till, now + RESERVATION)
    elseif letter == 'A' then
        local first = waiting.queue[1]
        if not first or first.id ~= ARGV[5] or not reservation or reservation.id ~= first.id
            or reservation.till <= now or reservation.successor ~= '' or (reservation.state or '') ~= '' then
            return nil
        end
        table.remove(waiting.queue, 1)
        waiting.reservation = nil
    elseif #waiting.queue == 0 then
        return nil
    end
    if #waiting.queue > 0 then
        record = string.char(TAILED) .. string.sub(record, 2) .. cmsgpack.pack({waiting = waiting})
    end
    life = math.max(life, KEPT + math.ceil((till - now) / 1000))
    return carry_out(prefix .. 'r:' .. ARGV[4], record, life, time, happened, token, holder)
end

if disputed and string.byte(disputed) == TAILED then
    local done = pass_on()
    if done then
        return done
    end
end
