SELECT channel, tree_topic, scope_topic FROM listen_to($1::bytea, $2::smallint)
