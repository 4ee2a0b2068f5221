SELECT sweep_expired($1::integer, $2::bigint) AS swept, clock_ms($2::bigint) AS clock_ms
