SELECT * FROM commit_batch(
  $1::bigint, $2::integer, $3::bytea[], $4::boolean[], $5::bytea[], $6::smallint[], $7::smallint[],
  $8::integer[], $9::integer[], $10::integer[], $11::smallint[], $12::bytea[], $13::bytea[], $14::bigint[], $15::bigint[],
  $16::integer[], $17::integer[], $18::bytea[], $19::bytea[], $20::bytea[], $21::bytea[], $22::bigint[], $23::bigint[], $24::integer[], $25::integer[], $26::boolean[], $27::bigint[], $28::bytea[],
  $29::integer[], $30::integer[], $31::bytea[],
  $32::integer[], $33::integer[], $34::integer[], $35::bytea[], $36::bytea[], $37::bytea[], $38::bigint[], $39::bigint[],
  $40::integer[], $41::integer[], $42::integer[], $43::bigint[], $44::bytea[], $45::bytea[], $46::bytea[], $47::bytea[], $48::bytea[], $49::integer[], $50::integer[], $51::integer[],
  $52::boolean, $53::integer[], $54::integer[], $55::integer[], $56::bytea[], $57::smallint[], $58::bytea[], $59::bigint, $60::bigint
)
