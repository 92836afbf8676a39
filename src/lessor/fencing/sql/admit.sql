-- One row changed means let in, none means that a newer token has been here.
-- An equal token is written too, since it is the write that locks the row until the transaction ends.
INSERT INTO {table} AS seen (resource, token) VALUES (:resource, :token)
ON CONFLICT (resource) DO UPDATE SET token = excluded.token WHERE excluded.token >= seen.token
