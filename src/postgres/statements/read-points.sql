SELECT i, value, version, committed_at, expires_at FROM read_points(clock_ms($1::bigint), true, $2::place[])
