SELECT key, value, version, committed_at, expires_at
FROM read_range(
  clock_ms($1::bigint), true,
  $2::bytea, $3::smallint, $4::smallint,
  $5::bytea, $6::bytea, $7::bytea, $8::bytea, $9::bigint, $10::bigint,
  $13::integer, $14::integer, $11::boolean, $12::bigint
)
