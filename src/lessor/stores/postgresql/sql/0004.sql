-- Version 4: resources that are closed though nobody holds them are shown, and can be opened. The functions alone are others.

-- This one has another parameter now.
DROP FUNCTION IF EXISTS wait(entries, operation, bigint, text, bigint, word[]);
