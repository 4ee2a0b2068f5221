SELECT key, value, version, committed_at, expires_at
FROM read_range(clock_ms($1::bigint), true, $2::bytea, $3::smallint, $4::smallint, $5::key_range)
