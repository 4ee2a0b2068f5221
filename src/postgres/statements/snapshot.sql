SELECT newest_version() AS version, read_time($1::bigint) AS at_ms
