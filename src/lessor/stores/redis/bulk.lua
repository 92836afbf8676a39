-- A batch that nobody disputes, each resource once: all records fetched by one command, decided, written. If a single
-- operation isn't that simple, the whole batch goes on to apply.lua, with nothing changed. After quick.lua, index.lua.

local function fetch()
    local lengths = {A = 9, N = 5, L = 4}
    local keys, fields, seen, field, last = {KEYS[1]}, {}, {}, 3, #ARGV
    while field <= last do
        local length, name = lengths[ARGV[field]], ARGV[field + 1]
        if not length or seen[name] then
            return nil
        end
        seen[name] = true
        fields[#fields + 1] = field
        keys[#keys + 1] = prefix .. 'r:' .. name
        field = field + length
    end
    local found = redis.call('MGET', unpack(keys))
    for index, start in ipairs(fields) do
        fetched[ARGV[start + 1]] = found[index + 1]
    end
    return fields, keys, tonumber(found[1] or 0)
end

local function bulk()
    local fields, keys, floor = fetch()
    if not fields then
        return nil
    end
    local records, lives, fresh, events, out, texts = {}, {}, {}, {}, {}, {}
    local minted, watched, at = false, nil, 0
    local renewed -- the time that all of them have, as long as all are renewed for the same
    for index, field in ipairs(fields) do
        local name = ARGV[field + 1]
        local record, life, time, happened, token, holder = decide(field, fetched[name], floor)
        if not record then
            return nil
        end
        local text = texts[life]
        if not text then
            text = string.format('%.0f', life)
            texts[life] = text
        end
        records[index], lives[index] = record, text
        if index == 1 and not happened then
            renewed = time
        elseif happened or time ~= renewed then
            renewed = nil
        end
        if happened == 'granted' then
            floor, minted = token, true
            out[at + 1], out[at + 2], out[at + 3] = 1, token, time
            at = at + 3
            if not fetched[name] then
                fresh[#fresh + 1] = name
            end
        else
            out[at + 1], out[at + 2] = happened and 5 or 3, time
            at = at + 2
        end
        if happened and watched == nil then
            watched = redis.call('PUBSUB', 'NUMSUB', prefix .. 'events')[2] > 0
        end
        if happened and watched then
            events[#events + 1] = {
                happened, name, string.format('%.0f', token), holder, string.format('%.0f', now),
                string.format('%.0f', time),
            }
        end
    end
    enlist(fresh)
    if minted then
        redis.call('SET', KEYS[1], string.format('%.0f', floor))
    end
    for index, record in ipairs(records) do
        redis.call('SET', keys[index + 1], record, 'PX', lives[index])
    end
    strike_off(fresh)
    if watched then
        redis.call('PUBLISH', prefix .. 'events', cjson.encode(events))
    end
    return renewed and {11, renewed} or out
end

local done = not disputed and bulk()
if done then
    return done
end
