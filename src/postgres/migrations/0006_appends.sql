-- Appends to logs.

-- Links an event to the event before it. `links` is the hash before the previous event and the hash of the previous event, 32 bytes
-- each; NULL for the first new event of a log, which is linked to the log's head. Returns the same for this event. As an aggregate over a
-- window it links all new events of a log.
CREATE FUNCTION link_next(links bytea, head bytea, sequence bigint, stamp bigint, body_hash bytea) RETURNS bytea
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  prev_hash bytea := coalesce(substr(links, 33), head);
BEGIN
  RETURN prev_hash || sha256('annals:link:1\000'::bytea || prev_hash || int8send(sequence) || int8send(stamp) || body_hash);
END
$$;
CREATE AGGREGATE chain(head bytea, sequence bigint, stamp bigint, body_hash bytea) (SFUNC = link_next, STYPE = bytea);

-- Appends new events to existing logs and moves the heads of the logs. A dedupe key that is already there is a unique violation.
CREATE FUNCTION append_new(base bigint, at_ms bigint, tree_ids bigint[], appends batch_append[])
RETURNS batch_appended[] LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
  answers batch_appended[];
BEGIN
  WITH placed AS (
    SELECT a.*, t.tree_id, t.scope, t.tag, coalesce(t.hash, zero_hash()) AS head,
      t.length + row_number() OVER log - 1 AS sequence,
      -- A time that the caller gives also bounds the times of the events after it.
      coalesce(a.time, greatest(at_ms, t.last_time, max(a.time) OVER log)) AS stamp,
      lead(a.place) OVER log IS NULL AS is_last
    FROM unnest(appends) a
    CROSS JOIN LATERAL (SELECT * FROM trees t WHERE t.tree_id = tree_ids[a.tree] LIMIT 1) t
    WINDOW log AS (PARTITION BY a.tree ORDER BY a.place ROWS UNBOUNDED PRECEDING)
  ), chained AS (
    SELECT p.*, chain(p.head, p.sequence, p.stamp, p.body_hash) OVER log AS links
    FROM placed p WINDOW log AS (PARTITION BY p.tree ORDER BY p.place ROWS UNBOUNDED PRECEDING)
  ), linked AS MATERIALIZED (
    SELECT c.*, substr(c.links, 1, 32) AS prev_hash, substr(c.links, 33) AS hash FROM chained c
  ), inserted AS (
    INSERT INTO events (
      tree_id, sequence, version, time, committed_at, prev_hash, hash, body,
      dedupe, dedupe_tail, dedupe_tail_id, memo, feed_id, feed_count
    )
    SELECT l.tree_id, l.sequence, base + l.tx, l.stamp, at_ms, l.prev_hash, l.hash, l.body,
      l.dedupe, l.dedupe_tail, CASE WHEN l.dedupe_tail = '' THEN ''::bytea ELSE sha256(l.dedupe_tail) END,
      l.memo, tree_ids[l.feed], CASE WHEN l.feed IS NOT NULL THEN l.feed_count END
    FROM linked l
  ), moved AS (
    -- Every row exists. An UPDATE would need a join, and a join that was planned while the table was empty would stay slow.
    INSERT INTO trees (tree_id, scope, tag, length, hash, last_time, version, committed_at)
    SELECT l.tree_id, l.scope, l.tag, l.sequence + 1, l.hash, l.stamp, base + l.tx, at_ms
    FROM linked l WHERE l.is_last
    ON CONFLICT (tree_id) DO UPDATE
    SET length = excluded.length, hash = excluded.hash, last_time = excluded.last_time,
      version = excluded.version, committed_at = excluded.committed_at
  )
  SELECT array_agg((l.place, l.sequence, l.stamp, l.hash, false, NULL)::batch_appended) INTO answers FROM linked l;
  RETURN answers;
END
$$;

-- Finds the events that have the dedupe keys of these appends.
CREATE FUNCTION find_duplicates(tree_ids bigint[], appends batch_append[]) RETURNS batch_appended[] LANGUAGE plpgsql AS $$
#variable_conflict use_variable
BEGIN
  RETURN ARRAY(
    SELECT (a.place, e.sequence, e.time, e.hash, true, e.memo)::batch_appended
    FROM unnest(appends) a
    CROSS JOIN LATERAL (
      SELECT e.sequence, e.time, e.hash, e.memo FROM events e
      WHERE e.tree_id = tree_ids[a.tree] AND e.dedupe = a.dedupe AND e.dedupe_tail = a.dedupe_tail LIMIT 1
    ) e
  );
END
$$;

-- Appends events, and answers a dedupe key that its log already has with the event that is there. `are_new` says that all keys are
-- probably new. Then no key is looked up: the unique index refuses a known one, and only then the keys are looked up.
CREATE FUNCTION append_events(are_new boolean, base bigint, at_ms bigint, tree_ids bigint[], appends batch_append[])
RETURNS batch_appended[] LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
  known batch_appended[];
  new_appends batch_append[];
  -- Appends with the key of another new one in the same batch.
  repeated batch_append[];
BEGIN
  IF are_new THEN
    BEGIN
      RETURN append_new(base, at_ms, tree_ids, appends);
    EXCEPTION WHEN unique_violation THEN
      NULL;
    END;
  END IF;
  known := find_duplicates(tree_ids, appends);
  SELECT array_agg(a.append) FILTER (WHERE a.is_first), array_agg(a.append) FILTER (WHERE NOT a.is_first)
  INTO new_appends, repeated
  FROM (
    SELECT a AS append,
      a.dedupe IS NULL OR row_number() OVER (PARTITION BY a.tree, a.dedupe, a.dedupe_tail ORDER BY a.place) = 1 AS is_first
    FROM unnest(appends) a WHERE NOT a.place = ANY (ARRAY(SELECT k.place FROM unnest(known) k))
  ) a;
  RETURN known || append_new(base, at_ms, tree_ids, new_appends) || find_duplicates(tree_ids, repeated);
END
$$;
