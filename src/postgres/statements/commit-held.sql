SELECT commit_held($1::bytea, $2::bigint, $3::bigint, $4::batch_tree[], $5::batch_put[]) AS is_done
