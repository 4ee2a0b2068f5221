SELECT key, value, version, committed_at, expires_at
FROM read_range(
  CASE WHEN $13::boolean THEN $1::bigint ELSE read_time($1::bigint) END, true,
  $2::bytea, $3::smallint, $4::smallint,
  $5::bytea, $6::bytea, $7::bytea, $8::bytea, $9::bigint, $10::bigint,
  $14::integer, $15::integer, $11::boolean, $12::bigint
)
