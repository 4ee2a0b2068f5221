SELECT * FROM commit_batch(
  $1::bigint, $2::integer,
  $3::bytea[], $4::boolean[],
  $5::bytea[], $6::smallint[], $7::smallint[],
  $8::integer[], $9::integer[], $10::bytea[], $11::bytea[], $12::bigint[], $13::bigint[],
  $14::integer[], $15::integer[], $16::bytea[], $17::bytea[], $18::bytea[], $19::bytea[],
  $20::bigint[], $21::bigint[], $22::boolean[], $23::bigint[], $24::bytea[],
  $25::integer[], $26::integer[], $27::bytea[],
  $28::integer[], $29::integer[], $30::integer[], $31::bytea[], $32::bytea[], $33::bytea[], $34::bigint[],
  $35::integer[], $36::integer[], $37::integer[], $38::bigint[], $39::bytea[], $40::bytea[],
  $41::bytea[], $42::bytea[], $43::bytea[], $44::integer[],
  $45::bytea[], $46::smallint[]
)
