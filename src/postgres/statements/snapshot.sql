SELECT newest_version() AS version, read_time($1::bigint) AS at_ms, clock_ms($1::bigint) AS clock_ms
