SELECT i, value, version, committed_at, expires_at
FROM read_points(
  clock_ms($1::bigint), true,
  $2::bytea[], $3::smallint[], $4::smallint[], $5::bytea[], $6::bytea[], $7::bigint[]
)
