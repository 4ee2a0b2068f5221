SELECT * FROM commit_batch(
  $1::bigint, $2::integer, $3::bytea[], $4::boolean[], $5::bytea[], $6::smallint[], $7::smallint[],
  $8::integer[], $9::integer[], $10::integer[], $11::bytea[], $12::bytea[], $13::bigint[], $14::bigint[],
  $15::integer[], $16::integer[], $17::bytea[], $18::bytea[], $19::bytea[], $20::bytea[], $21::bigint[], $22::bigint[], $23::integer[], $24::integer[], $25::boolean[], $26::bigint[], $27::bytea[],
  $28::integer[], $29::integer[], $30::bytea[],
  $31::integer[], $32::integer[], $33::integer[], $34::bytea[], $35::bytea[], $36::bytea[], $37::bigint[],
  $38::integer[], $39::integer[], $40::integer[], $41::bigint[], $42::bytea[], $43::bytea[], $44::bytea[], $45::bytea[], $46::bytea[], $47::integer[], $48::integer[], $49::integer[],
  $50::boolean, $51::integer[], $52::integer[], $53::integer[], $54::bytea[], $55::smallint[], $56::bytea[]
)
