SELECT read_scopes($1::bytea, $2::bytea, $3::bigint) AS scope
