SELECT commit_append(
  $1::bigint, $2::bytea, $3::smallint, $4::bigint, $5::bytea, $6::bytea, $7::bytea, $8::bytea, $9::bytea,
  $10::bytea, $11::smallint, $12::smallint[], $13::bytea[], $14::bytea[], $15::bigint[], $16::bigint
) AS answer
