SELECT part, i, key, value, version, committed_at, expires_at
FROM hold_and_read($1::bigint, $2::bigint, $3::integer, $4::bytea[], $5::place[], $6::tree_range[])
