-- Commits one append that relies on nothing but entries of the same scope. This is the most common commit.

-- The log, and the feed if there is one.
CREATE FUNCTION trees_of(append lone_append) RETURNS batch_tree[] LANGUAGE plpgsql AS $$
DECLARE
  log batch_tree := (append.scope, append.tag, 1, true, true);
BEGIN
  IF append.feed_scope IS NULL THEN
    RETURN ARRAY[log];
  END IF;
  RETURN ARRAY[log, (append.feed_scope, append.feed_tag, 4, true, true)::batch_tree];
END
$$;

-- It does what `commit_batch` does, in three statements: starting a statement costs more than its work here.
CREATE FUNCTION commit_append(
  -- As in `commit_batch`.
  given_ms bigint, not_before bigint, turn bigint,
  append lone_append, points lone_point[]
) RETURNS batch_outcome
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
#variable_conflict use_variable
DECLARE
  seed bigint;
  is_bound boolean;
  is_locked boolean;
  ticked bigint[];
  version bigint;
  at_ms bigint;
  clock_at bigint;
  is_heard boolean;
  -- The number of a point that has changed.
  changed integer;
  -- The log and its head, or the event that has the dedupe key already.
  id bigint;
  sequence bigint;
  prev bytea;
  stamp bigint;
  hash bytea;
  memo bytea;
  is_known boolean;
  feed bigint;
  tree_ids bigint[];
BEGIN
  is_locked := in_turn(turn);
  -- Checks access, then takes the locks like `lock_scopes`. The CASE guarantees this order.
  LOOP
    SELECT k.seed, k.is_bound,
      CASE WHEN k.is_allowed OR check_scopes(ARRAY[append.scope, coalesce(append.feed_scope, append.scope)]) THEN
        CASE WHEN k.feed_tenant <> k.tenant THEN lock_scopes(trees_of(append)) IS NOT NULL
        ELSE (
          SELECT count(*) FROM (
            SELECT FROM locks l WHERE l.tenant = k.tenant AND l.slot IN (k.slot, k.feed_slot) ORDER BY l.slot FOR UPDATE
          ) locked
        ) > 0 END
      END
    INTO seed, is_bound, is_locked
    FROM (
      SELECT s.seed, a.role_name IS NOT NULL AND a.tenant IS NULL AS is_allowed, a.tenant IS NOT NULL AS is_bound,
        tenant_of(append.scope) AS tenant, tenant_of(append.feed_scope) AS feed_tenant,
        slot_of(append.scope) AS slot, slot_of(append.feed_scope) AS feed_slot
      FROM settings s LEFT JOIN access a ON a.role_name = session_user
      OFFSET 0
    ) k;
    EXIT WHEN is_locked;
    is_locked := make_locks(ARRAY[tenant_of(append.scope)]);
  END LOOP;
  ticked := tick(
    CASE WHEN NOT is_bound THEN given_ms END,
    -- An ordinary append names no time. `least` would skip that NULL and return the latest time allowed.
    CASE WHEN is_bound THEN least(coalesce(append.time, 0), ahead_ms()) ELSE greatest(append.time, not_before) END
  );
  version := ticked[1];
  at_ms := ticked[2];
  clock_at := ticked[3];

  -- One statement looks up the points, the log, the dedupe key and the feed.
  SELECT w.point, t.tree_id, coalesce(d.sequence, t.length), coalesce(t.hash, zero_hash()),
    coalesce(d.time, append.time, greatest(at_ms, t.last_time)), d.hash, d.memo, d.sequence IS NOT NULL, f.tree_id
  INTO changed, id, sequence, prev, stamp, hash, memo, is_known, feed
  FROM (
    SELECT min(p.ordinality)::integer AS point
    FROM unnest(points) WITH ORDINALITY AS p
    LEFT JOIN LATERAL (
      SELECT t.tree_id FROM trees t WHERE t.scope = append.scope AND t.tag = p.tag LIMIT 1
    ) t ON true
    LEFT JOIN LATERAL (
      SELECT e.version FROM entries e
      WHERE e.tree_id = t.tree_id AND e.key = p.key AND e.tail = p.tail
        AND (e.expires_at = 0 OR e.expires_at > clock_at)
      LIMIT 1
    ) e ON true
    WHERE coalesce(e.version, 0) <> p.version
  ) w
  LEFT JOIN LATERAL (
    SELECT t.tree_id, t.length, t.hash, t.last_time FROM trees t WHERE t.scope = append.scope AND t.tag = append.tag LIMIT 1
  ) t ON true
  LEFT JOIN LATERAL (
    SELECT e.sequence, e.hash, e.time, e.memo FROM events e
    WHERE e.tree_id = t.tree_id AND e.dedupe = append.dedupe AND e.dedupe_tail = append.dedupe_tail LIMIT 1
  ) d ON true
  LEFT JOIN LATERAL (
    SELECT l.tree_id FROM trees l WHERE l.scope = append.feed_scope AND l.tag = append.feed_tag LIMIT 1
  ) f ON true;
  IF changed IS NOT NULL THEN
    RETURN (version, at_ms, ARRAY[(0, changed, NULL)::batch_conflict], NULL)::batch_outcome;
  END IF;
  IF is_known THEN
    RETURN (version, at_ms, NULL, ARRAY[(0, sequence, stamp, hash, true, memo)::batch_appended])::batch_outcome;
  END IF;
  IF id IS NULL OR (feed IS NULL AND append.feed_scope IS NOT NULL) THEN
    tree_ids := tree_ids_of(trees_of(append));
    id := tree_ids[1];
    feed := tree_ids[2];
    sequence := coalesce(sequence, 0);
    stamp := coalesce(stamp, at_ms);
  END IF;
  UPDATE trees t
  SET length = sequence + 1, last_time = stamp, version = version, committed_at = at_ms,
    hash = sha256('annals:link:1\000'::bytea || prev || int8send(sequence) || int8send(stamp) || append.body_hash)
  WHERE t.tree_id = id RETURNING t.hash INTO hash;
  INSERT INTO events (
    tree_id, sequence, version, time, committed_at, prev_hash, hash, body,
    dedupe, dedupe_tail, dedupe_tail_id, memo, feed_id, feed_count
  ) VALUES (
    id, sequence, version, stamp, at_ms, prev, hash, append.body, append.dedupe, append.dedupe_tail,
    CASE WHEN append.dedupe_tail = '' THEN ''::bytea ELSE sha256(append.dedupe_tail) END, append.memo,
    feed, CASE WHEN feed IS NOT NULL THEN 0 END
  ) RETURNING EXISTS (
    SELECT FROM listeners l WHERE l.tenant IN (tenant_of(append.scope), tenant_of(append.feed_scope))
  ) INTO is_heard;
  IF is_heard THEN
    PERFORM announce(seed, trees_of(append));
  END IF;
  RETURN (version, at_ms, NULL, ARRAY[(0, sequence, stamp, hash, false, NULL)::batch_appended])::batch_outcome;
END
$$;
