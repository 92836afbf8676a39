-- One operation that nobody disputes, decided before the rules are set up: that takes longer than this does.
-- An acquire of what is free, a renewal or a release of what is held. Whatever isn't so simple goes on to turn.lua,
-- with nothing changed. After head.lua.

local KEPT = 60000 -- how long the record of a free resource is kept, in milliseconds

-- Decide about the operation that starts at that field: its new record, for how many milliseconds to keep it, and
-- what comes of it: the time that it has and, if others are to be told, what happened, the token and the holder.
-- Nothing at all where it isn't simple. No table is made: most of the time would go into that.
local function decide(field, packed, floor)
    local letter, id = ARGV[field], ARGV[field + 2]
    if letter == 'A' then
        local token, ttl = math.max(floor, tonumber(ARGV[field + 3])), tonumber(ARGV[field + 5])
        if packed then
            local kind, before, expiry, id_length = struct.unpack('<BddH', packed)
            if kind ~= PLAIN or id_length > 0 or expiry > now then
                return nil
            end
            token = math.max(token, before)
        end
        token = math.max(token + 1, now)
        if token >= 9007199254740992 then
            return nil
        end
        local holder, notify, metadata = ARGV[field + 4], ARGV[field + 7], ARGV[field + 8]
        local record = struct.pack(
            HEAD, PLAIN, token, now + ttl, #id, id, ttl, now, now, 0, #holder, holder, 0, '', #notify, notify,
            #metadata, metadata
        )
        return record, KEPT + math.ceil(ttl / 1000), ttl, 'granted', token, holder
    end
    if not packed then
        return nil
    end
    local kind, token, expiry, owner, ttl, granted, renewed, renewals, holder, ended, notify, metadata =
        struct.unpack(HEAD, packed)
    if kind ~= PLAIN or owner ~= id or now >= expiry then
        return nil
    end
    if letter == 'N' then
        local asked = tonumber(ARGV[field + 4])
        expiry = math.max(expiry, now + asked)
        local record = struct.pack(
            HEAD, PLAIN, token, expiry, #id, id, ttl == 0 and 0 or math.max(ttl, asked), granted, now, renewals + 1,
            #holder, holder, #ended, ended, #notify, notify, #metadata, metadata
        )
        return record, KEPT + math.ceil((expiry - now) / 1000), expiry - now
    end
    if ARGV[field + 3] ~= '' or granted > now then -- the clock may have been set back
        return nil
    end
    local record = struct.pack(
        HEAD, PLAIN, token, now, 0, '', ttl, granted, renewed, renewals, #holder, holder, 8, 'released', 0, '',
        #metadata, metadata
    )
    return record, KEPT, 0, 'released', token, holder
end

-- Write what was decided about the only operation, tell whoever watches, and return the answer.
local function carry_out(key, record, life, time, happened, token, holder)
    if happened == 'granted' then
        redis.call('SET', KEYS[1], string.format('%.0f', token))
    end
    redis.call('SET', key, record, 'PX', string.format('%.0f', life))
    if happened and redis.call('PUBSUB', 'NUMSUB', prefix .. 'events')[2] > 0 then
        redis.call('PUBLISH', prefix .. 'events', cjson.encode({{
            happened, ARGV[4], string.format('%.0f', token), holder, string.format('%.0f', now),
            string.format('%.0f', time),
        }}))
    end
    if happened == 'granted' then
        return {1, token, time}
    end
    return {happened and 5 or 3, time}
end

local disputed -- the record of the only operation, if that isn't simple
local letter, floor = ARGV[3], 0
if (letter == 'A' and #ARGV == 11) or (letter == 'N' and #ARGV == 7) or (letter == 'L' and #ARGV == 6) then
    local key = prefix .. 'r:' .. ARGV[4]
    local packed
    if letter == 'A' then
        local found = redis.call('MGET', key, KEYS[1])
        packed, floor = found[1], tonumber(found[2] or 0)
    else
        packed = redis.call('GET', key)
    end
    if packed then
        if string.byte(packed) == PLAIN then
            local record, life, time, happened, token, holder = decide(3, packed, floor)
            if record then
                return carry_out(key, record, life, time, happened, token, holder)
            end
        end
        disputed = packed
    end
    fetched[ARGV[4]] = packed
end
