SELECT wait_for_writers($1::bytea, $2::boolean) AS are_through
