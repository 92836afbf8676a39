-- Names are compared byte by byte, so that the index doesn't depend on a collation that an upgrade of the host changes.
CREATE TABLE IF NOT EXISTS {table} (resource TEXT COLLATE "C" PRIMARY KEY, token BIGINT NOT NULL)
