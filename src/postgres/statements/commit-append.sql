SELECT record_send(commit_append($1::bigint, $2::bigint, $3::bigint, $4::lone_append, $5::lone_point[])) AS outcome
