-- A lone operation that nobody disputes, decided before the rules are set up: that takes longer than this does.
-- Whatever isn't so simple falls through to apply.lua, with nothing changed. After head.lua.

local letter = ARGV[3]
if (letter == 'A' and #ARGV == 11) or (letter == 'L' and #ARGV == 7 and ARGV[6] == '' and ARGV[7] == '') then
    local key = prefix .. 'r:' .. ARGV[4]
    local found = redis.call('MGET', key, KEYS[1])
    local entry = found[1] and cmsgpack.unpack(found[1])
    local answer, kind, left
    local keep = 60000 -- as in apply.lua, in milliseconds
    if not entry or entry.waiting or entry.children then
        entry = nil
    elseif letter == 'A' then
        local token = math.max(math.max(entry.token or 0, tonumber(found[2] or 0), tonumber(ARGV[10])) + 1, now)
        if not entry.id and (entry.expiry or 0) <= now and token < 9007199254740992 then
            kind, left = 'granted', tonumber(ARGV[7])
            entry = {
                v = 1, resource = ARGV[4], token = token, id = ARGV[5], holder = ARGV[6], ttl = left,
                expiry = now + left, granted = now, renewed = now,
            }
            if ARGV[9] ~= '' then
                entry.notify = ARGV[9]
            end
            if ARGV[11] ~= '' then
                entry.metadata = ARGV[11]
            end
            redis.call('SET', KEYS[1], string.format('%.0f', token))
            keep = keep + math.ceil(left / 1000)
            answer = {1, token, left}
        end
    elseif entry.id == ARGV[5] and now < entry.expiry and not entry.parent and not entry.hold_at_least
        and entry.granted <= now then -- the clock may have been set back
        kind, left = 'released', 0
        entry.id, entry.notify, entry.expiry, entry.ended = nil, nil, now, kind
        keep = keep + math.ceil(((entry.lock_delay or 0) + (entry.grace or 0)) / 1000)
        answer = {5, 0}
    end
    if answer then
        redis.call('SET', key, cmsgpack.pack(entry), 'PX', string.format('%.0f', keep))
        local channel = prefix .. 'events'
        if redis.call('PUBSUB', 'NUMSUB', channel)[2] > 0 then
            local token, at, ttl = string.format('%.0f', entry.token), string.format('%.0f', now), string.format('%.0f', left)
            redis.call('PUBLISH', channel, cjson.encode({{kind, ARGV[4], token, entry.holder, at, ttl}}))
        end
        return answer
    end
end
