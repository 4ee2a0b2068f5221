SELECT i, value, version, committed_at, expires_at
FROM read_points(
  CASE WHEN $8::boolean THEN $1::bigint ELSE read_time($1::bigint) END, true,
  $2::bytea[], $3::smallint[], $4::smallint[], $5::bytea[], $6::bytea[], $7::bigint[]
)
