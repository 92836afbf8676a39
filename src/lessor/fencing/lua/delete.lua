local deleted = 0
for _, key in ipairs(KEYS) do
    deleted = deleted + redis.call('DEL', key)
end
return deleted
