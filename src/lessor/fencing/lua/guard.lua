-- Stands before every guarded script, in the same call: it lets the token in and keeps it, or ends the call.
--
-- KEYS[1]  where the newest token is kept; the script's own keys follow
-- ARGV[1]  the token of this write; the script's own arguments follow
--
-- Tokens stay below 2^53, so Lua's numbers compare them exactly. Kept is the text that came: Lua's own would be rounded.
-- Newer tokens are kept *before* the script runs. If that fails half-way, what it has written stays, as always on
-- Redis; then an older holder must not be let in any more.
do
    local token, kept = ARGV[1], redis.call('GET', KEYS[1])
    if kept and (not kept:match('^%d+$') or #kept > 16) then
        return redis.error_reply('TAMPERED with')
    end
    if kept and tonumber(kept) > tonumber(token) then
        return redis.error_reply('FENCED ' .. kept)
    end
    if not kept or tonumber(kept) < tonumber(token) then
        redis.call('SET', KEYS[1], token)
    end
end
table.remove(KEYS, 1)
table.remove(ARGV, 1)
