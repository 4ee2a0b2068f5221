SELECT commit_append(
  $1::bigint, $2::bigint, $3::bytea, $4::smallint, $5::bigint, $6::bytea, $7::bytea, $8::bytea, $9::bytea, $10::bytea,
  $11::bytea, $12::smallint, $13::smallint[], $14::bytea[], $15::bytea[], $16::bigint[], $17::bigint
) AS answer
