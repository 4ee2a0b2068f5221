SELECT channel, tree_topic, scope_topic FROM topics($1::bytea, $2::smallint)
