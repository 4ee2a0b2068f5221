SELECT wait_for_writers($1::bytea)
