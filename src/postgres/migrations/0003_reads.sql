-- Reads.

-- The time now in milliseconds since 1970: the server's, unless a test passes its own. Expiry follows this clock.
CREATE FUNCTION clock_ms(given bigint) RETURNS bigint LANGUAGE sql VOLATILE AS $$
  SELECT coalesce(given, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint)
$$;

-- The time that a reader sees, in milliseconds since 1970. It is never before the time of a commit.
CREATE FUNCTION read_time(given bigint) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
  RETURN (SELECT greatest(clock_ms(given), last_value) FROM clock);
END
$$;

-- The highest version that any commit so far can have.
CREATE FUNCTION newest_version() RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
  RETURN (SELECT CASE WHEN is_called THEN last_value + 1023 ELSE 0 END FROM versions);
END
$$;

-- The entries of a feed, including those of deleted logs.
CREATE FUNCTION read_feed(
  of_feed bigint, from_version bigint, from_count integer, to_version bigint, to_count integer,
  backwards boolean, at_most bigint
) RETURNS TABLE (key bytea, value bytea, version bigint, committed_at bigint)
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_column
BEGIN
  IF from_version IS NULL THEN
    RETURN;
  ELSIF NOT backwards THEN
    RETURN QUERY
      SELECT int8send(f.version) || int4send(f.feed_count),
        int8send(f.sequence) || int8send(f.time) || f.scope, f.version, f.committed_at
      FROM (
        (SELECT e.version, e.feed_count, e.sequence, e.time, e.committed_at, l.scope
         FROM events e CROSS JOIN LATERAL (SELECT t.scope FROM trees t WHERE t.tree_id = e.tree_id LIMIT 1) l
         WHERE e.feed_id = of_feed AND (e.version, e.feed_count) >= (from_version, from_count)
           AND (e.version, e.feed_count) < (to_version, to_count)
         ORDER BY e.version, e.feed_count LIMIT at_most)
        UNION ALL
        (SELECT r.version, r.feed_count, r.sequence, r.time, r.committed_at, r.scope
         FROM feed_remains r
         WHERE r.feed_id = of_feed AND (r.version, r.feed_count) >= (from_version, from_count)
           AND (r.version, r.feed_count) < (to_version, to_count)
         ORDER BY r.version, r.feed_count LIMIT at_most)
      ) f ORDER BY f.version, f.feed_count LIMIT at_most;
  ELSE
    RETURN QUERY
      SELECT int8send(f.version) || int4send(f.feed_count),
        int8send(f.sequence) || int8send(f.time) || f.scope, f.version, f.committed_at
      FROM (
        (SELECT e.version, e.feed_count, e.sequence, e.time, e.committed_at, l.scope
         FROM events e CROSS JOIN LATERAL (SELECT t.scope FROM trees t WHERE t.tree_id = e.tree_id LIMIT 1) l
         WHERE e.feed_id = of_feed AND (e.version, e.feed_count) >= (from_version, from_count)
           AND (e.version, e.feed_count) < (to_version, to_count)
         ORDER BY e.version DESC, e.feed_count DESC LIMIT at_most)
        UNION ALL
        (SELECT r.version, r.feed_count, r.sequence, r.time, r.committed_at, r.scope
         FROM feed_remains r
         WHERE r.feed_id = of_feed AND (r.version, r.feed_count) >= (from_version, from_count)
           AND (r.version, r.feed_count) < (to_version, to_count)
         ORDER BY r.version DESC, r.feed_count DESC LIMIT at_most)
      ) f ORDER BY f.version DESC, f.feed_count DESC LIMIT at_most;
  END IF;
END
$$;

-- Reads many places as of one moment. `i` is the number of the place, from 1. Each lookup is a LATERAL with LIMIT 1, so that no plan
-- scans a whole table.
CREATE FUNCTION read_points(now_ms bigint, with_values boolean, places place[])
RETURNS TABLE (i bigint, value bytea, version bigint, committed_at bigint, expires_at bigint)
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY
  SELECT q.ordinality, f.value, f.version, f.committed_at, f.expires_at
  FROM unnest(places) WITH ORDINALITY AS q
  CROSS JOIN LATERAL (
    SELECT t.tree_id, t.length, t.hash, t.version, t.committed_at
    FROM trees t WHERE t.scope = q.scope AND t.tag = q.tag LIMIT 1
  ) t
  CROSS JOIN LATERAL (
    (SELECT CASE WHEN with_values THEN e.value END AS value, e.version, e.committed_at, e.expires_at
     FROM entries e
     WHERE q.kind = 0 AND e.tree_id = t.tree_id AND e.key = q.key AND e.tail = q.tail
       AND (e.expires_at = 0 OR e.expires_at > now_ms)
     LIMIT 1)
    UNION ALL
    (SELECT CASE WHEN with_values THEN e.prev_hash || e.hash || int8send(e.time) || e.body END,
       e.version, e.committed_at, 0::bigint
     FROM events e WHERE q.kind = 1 AND e.tree_id = t.tree_id AND e.sequence = q.sequence
     LIMIT 1)
    UNION ALL
    (SELECT int8send(t.length) || t.hash, t.version, t.committed_at, 0::bigint
     WHERE q.kind = 2 AND q.key = 'head' AND t.length > 0)
    UNION ALL
    (SELECT int8send(e.sequence) || int8send(e.time) || e.hash || e.memo, e.version, e.committed_at, 0::bigint
     FROM events e
     WHERE q.kind = 3 AND e.tree_id = t.tree_id AND e.dedupe = q.key AND e.dedupe_tail = q.tail
     LIMIT 1)
    UNION ALL
    (SELECT r.value, r.version, r.committed_at, 0::bigint
     FROM read_feed(t.tree_id, q.sequence, 0, q.sequence + 1, 0, false, NULL) r
     WHERE q.kind = 4 AND r.key = q.key)
  ) f;
END
$$;

-- Reads one range in byte order of its keys.
CREATE FUNCTION read_range(
  now_ms bigint, with_values boolean, of_scope bytea, of_tag smallint, of_kind smallint, range key_range
) RETURNS TABLE (key bytea, value bytea, version bigint, committed_at bigint, expires_at bigint)
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_column
DECLARE
  tree trees;
  -- An open end makes a worse plan, so there is always an upper bound: one above all keys.
  to_key bytea := coalesce(range.to_key, decode(repeat('ff', 2001), 'hex'));
BEGIN
  SELECT * INTO tree FROM trees t WHERE t.scope = of_scope AND t.tag = of_tag LIMIT 1;
  IF tree.tree_id IS NULL THEN
    RETURN;
  ELSIF of_kind = 0 AND NOT range.backwards THEN
    RETURN QUERY
      SELECT e.key || e.tail, CASE WHEN with_values THEN e.value END, e.version, e.committed_at, e.expires_at
      FROM entries e
      WHERE e.tree_id = tree.tree_id
        AND e.key >= range.from_key AND (e.key, e.tail) >= (range.from_key, range.from_tail)
        AND e.key <= to_key AND (e.key, e.tail) < (to_key, range.to_tail)
        AND (e.expires_at = 0 OR e.expires_at > now_ms)
      ORDER BY e.key, e.tail LIMIT range.at_most;
  ELSIF of_kind = 0 THEN
    RETURN QUERY
      SELECT e.key || e.tail, CASE WHEN with_values THEN e.value END, e.version, e.committed_at, e.expires_at
      FROM entries e
      WHERE e.tree_id = tree.tree_id
        AND e.key >= range.from_key AND (e.key, e.tail) >= (range.from_key, range.from_tail)
        AND e.key <= to_key AND (e.key, e.tail) < (to_key, range.to_tail)
        AND (e.expires_at = 0 OR e.expires_at > now_ms)
      ORDER BY e.key DESC, e.tail DESC LIMIT range.at_most;
  ELSIF of_kind = 1 AND NOT range.backwards THEN
    RETURN QUERY
      SELECT int8send(e.sequence),
        CASE WHEN with_values THEN e.prev_hash || e.hash || int8send(e.time) || e.body END,
        e.version, e.committed_at, 0::bigint
      FROM events e
      WHERE e.tree_id = tree.tree_id AND e.sequence >= range.from_sequence AND e.sequence < range.to_sequence
      ORDER BY e.sequence LIMIT range.at_most;
  ELSIF of_kind = 1 THEN
    RETURN QUERY
      SELECT int8send(e.sequence),
        CASE WHEN with_values THEN e.prev_hash || e.hash || int8send(e.time) || e.body END,
        e.version, e.committed_at, 0::bigint
      FROM events e
      WHERE e.tree_id = tree.tree_id AND e.sequence >= range.from_sequence AND e.sequence < range.to_sequence
      ORDER BY e.sequence DESC LIMIT range.at_most;
  ELSIF of_kind = 2 THEN
    RETURN QUERY
      SELECT 'head'::bytea, int8send(tree.length) || tree.hash, tree.version, tree.committed_at, 0::bigint
      WHERE tree.length > 0 AND 'head'::bytea >= range.from_key AND 'head'::bytea < to_key;
  ELSIF of_kind = 4 THEN
    RETURN QUERY
      SELECT f.key, f.value, f.version, f.committed_at, 0::bigint
      FROM read_feed(tree.tree_id, range.from_sequence, range.from_count, range.to_sequence, range.to_count, range.backwards, range.at_most) f;
  ELSIF NOT range.backwards THEN
    RETURN QUERY
      SELECT e.dedupe || e.dedupe_tail, int8send(e.sequence) || int8send(e.time) || e.hash || e.memo,
        e.version, e.committed_at, 0::bigint
      FROM events e
      WHERE e.tree_id = tree.tree_id
        AND e.dedupe >= range.from_key AND (e.dedupe, e.dedupe_tail) >= (range.from_key, range.from_tail)
        AND e.dedupe <= to_key AND (e.dedupe, e.dedupe_tail) < (to_key, range.to_tail)
      ORDER BY e.dedupe, e.dedupe_tail LIMIT range.at_most;
  ELSE
    RETURN QUERY
      SELECT e.dedupe || e.dedupe_tail, int8send(e.sequence) || int8send(e.time) || e.hash || e.memo,
        e.version, e.committed_at, 0::bigint
      FROM events e
      WHERE e.tree_id = tree.tree_id
        AND e.dedupe >= range.from_key AND (e.dedupe, e.dedupe_tail) >= (range.from_key, range.from_tail)
        AND e.dedupe <= to_key AND (e.dedupe, e.dedupe_tail) < (to_key, range.to_tail)
      ORDER BY e.dedupe DESC, e.dedupe_tail DESC LIMIT range.at_most;
  END IF;
END
$$;

-- The scopes that hold something. Each iteration skips to the next scope by the index.
CREATE FUNCTION read_scopes(from_scope bytea, to_scope bytea, at_most bigint) RETURNS SETOF bytea
LANGUAGE plpgsql STABLE AS $$
DECLARE
  next_scope bytea := from_scope;
  found_scopes bigint := 0;
BEGIN
  WHILE found_scopes < at_most LOOP
    SELECT t.scope INTO next_scope FROM trees t
    WHERE t.scope >= next_scope AND (to_scope IS NULL OR t.scope < to_scope)
    ORDER BY t.scope, t.tag LIMIT 1;
    EXIT WHEN next_scope IS NULL;
    IF EXISTS (
      SELECT FROM trees t WHERE t.scope = next_scope
        AND (
          t.length > 0
          OR EXISTS (SELECT FROM entries e WHERE e.tree_id = t.tree_id LIMIT 1)
          OR EXISTS (SELECT FROM events e WHERE e.feed_id = t.tree_id LIMIT 1)
          OR EXISTS (SELECT FROM feed_remains r WHERE r.feed_id = t.tree_id LIMIT 1)
        )
    ) THEN
      found_scopes := found_scopes + 1;
      RETURN NEXT next_scope;
    END IF;
    next_scope := next_scope || '\x00'::bytea;
  END LOOP;
END
$$;
