SELECT record_send(commit_batch(
  $1::bigint, $2::bigint, $3::bigint, $4::integer, $5::boolean,
  $6::batch_tree[], $7::batch_point[], $8::batch_range[], $9::batch_drop[], $10::batch_put[], $11::batch_append[]
)) AS outcome
