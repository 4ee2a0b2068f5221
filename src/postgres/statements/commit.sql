SELECT * FROM commit_batch(
  $1::bigint, $2::integer, $3::bytea[], $4::boolean[], $5::bytea[], $6::smallint[], $7::smallint[],
  $8::integer[], $9::integer[], $10::bytea[], $11::bytea[], $12::bigint[], $13::bigint[],
  $14::integer[], $15::integer[], $16::bytea[], $17::bytea[], $18::bytea[], $19::bytea[], $20::bigint[],
  $21::bigint[], $22::integer[], $23::integer[], $24::boolean[], $25::bigint[], $26::bytea[],
  $27::integer[], $28::integer[], $29::bytea[],
  $30::integer[], $31::integer[], $32::integer[], $33::bytea[], $34::bytea[], $35::bytea[], $36::bigint[],
  $37::integer[], $38::integer[], $39::integer[], $40::bigint[], $41::bytea[], $42::bytea[], $43::bytea[],
  $44::bytea[], $45::bytea[], $46::integer[], $47::integer[], $48::integer[],
  $49::boolean, $50::integer[], $51::bytea[], $52::smallint[], $53::bytea[]
)
