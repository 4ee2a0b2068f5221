-- What a commit reads and changes: trees, entries and whole scopes.

-- Returns the ids of the trees, in their order; NULL for one that is missing. Trees that are to be created are created here.
CREATE FUNCTION tree_ids_of(trees batch_tree[]) RETURNS bigint[] LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
  ids bigint[];
  are_complete boolean;
BEGIN
  LOOP
    SELECT array_agg(t.tree_id ORDER BY b.ordinality), bool_and(t.tree_id IS NOT NULL OR NOT b.is_created)
    INTO ids, are_complete
    FROM unnest(trees) WITH ORDINALITY AS b
    LEFT JOIN LATERAL (SELECT t.tree_id FROM trees t WHERE t.scope = b.scope AND t.tag = b.tag LIMIT 1) t ON true;
    IF are_complete IS NOT FALSE THEN
      RETURN ids;
    END IF;
    INSERT INTO trees (tree_id, scope, tag)
    SELECT nextval('tree_ids'), b.scope, b.tag FROM unnest(trees) b WHERE b.is_created
    ON CONFLICT (scope, tag) DO NOTHING;
  END LOOP;
END
$$;

-- Deletes everything in a scope. It records the deletion of each log; a trigger refuses to delete events without such a record.
CREATE FUNCTION drop_scope(of_scope bytea, at_version bigint, at_ms bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  ids bigint[] := ARRAY(SELECT t.tree_id FROM trees t WHERE t.scope = of_scope);
BEGIN
  INSERT INTO deletions (tree_id, scope, tag, length, hash, version, committed_at, role_name, xid)
  SELECT t.tree_id, t.scope, t.tag, t.length, t.hash, at_version, at_ms, session_user, pg_current_xact_id()
  FROM trees t WHERE t.scope = of_scope AND t.length > 0;
  -- Feeds of other scopes keep listing the events of this one. Feeds in this scope are deleted.
  INSERT INTO feed_remains (feed_id, version, feed_count, sequence, time, committed_at, scope)
  SELECT e.feed_id, e.version, e.feed_count, e.sequence, e.time, e.committed_at, of_scope
  FROM events e WHERE e.tree_id = ANY (ids) AND e.feed_id IS NOT NULL AND NOT e.feed_id = ANY (ids);
  DELETE FROM feed_remains r WHERE r.feed_id = ANY (ids);
  DELETE FROM events e WHERE e.tree_id = ANY (ids);
  DELETE FROM entries e WHERE e.tree_id = ANY (ids);
  DELETE FROM trees t WHERE t.scope = of_scope;
END
$$;

-- Returns the numbers of the points that have another version now.
CREATE FUNCTION changed_points(clock_at bigint, trees batch_tree[], tree_ids bigint[], points batch_point[])
RETURNS integer[] LANGUAGE plpgsql AS $$
#variable_conflict use_variable
BEGIN
  RETURN (
    SELECT array_agg(p.ordinality::integer)
    FROM unnest(points) WITH ORDINALITY AS p
    -- Nearly all points are entries.
    WHERE p.version <> coalesce(CASE WHEN p.kind = 0 THEN (
      SELECT e.version FROM entries e
      WHERE e.tree_id = tree_ids[p.tree] AND e.key = p.key AND e.tail = p.tail
        AND (e.expires_at = 0 OR e.expires_at > clock_at)
      LIMIT 1
    ) ELSE (
      SELECT r.version
      FROM read_points(
        clock_at, false, ARRAY[(trees[p.tree].scope, trees[p.tree].tag, p.kind, p.key, p.tail, p.sequence)::place]
      ) r
    ) END, 0)
  );
END
$$;

-- Applies puts and deletes. The last one to a key counts.
CREATE FUNCTION put_entries(base bigint, at_ms bigint, tree_ids bigint[], puts batch_put[])
RETURNS boolean LANGUAGE plpgsql AS $$
#variable_conflict use_variable
BEGIN
  WITH written AS MATERIALIZED (
    SELECT DISTINCT ON (p.tree, p.key, p.tail) p.*, tree_ids[p.tree] AS tree_id,
      CASE WHEN p.tail = '' THEN ''::bytea ELSE sha256(p.tail) END AS tail_id
    FROM unnest(puts) WITH ORDINALITY AS p
    ORDER BY p.tree, p.key, p.tail, p.ordinality DESC
  ), deleted AS (
    DELETE FROM entries e WHERE e.ctid = ANY (ARRAY(
      SELECT f.ctid FROM written p
      CROSS JOIN LATERAL (
        SELECT x.ctid FROM entries x
        WHERE x.tree_id = p.tree_id AND x.key = p.key AND x.tail_id = p.tail_id LIMIT 1
      ) f
      WHERE p.value IS NULL
    ))
  )
  INSERT INTO entries AS e (tree_id, key, tail, tail_id, value, version, committed_at, expires_at)
  -- A time that the caller gives is never after the commit's, because readers take it for a time in the past.
  SELECT p.tree_id, p.key, p.tail, p.tail_id, p.value, base + p.tx, least(p.time, at_ms), p.expires_at
  FROM written p WHERE p.value IS NOT NULL
  ON CONFLICT (tree_id, key, tail_id) DO UPDATE
  SET value = excluded.value, version = excluded.version,
    committed_at = excluded.committed_at, expires_at = excluded.expires_at;
  RETURN true;
END
$$;

-- Removes at most so many expired entries, which no reader sees any more, and returns their number. It waits for no lock: it skips
-- rows that another session is writing or sweeping. A role bound to a tenant sweeps only that tenant, because the rows stay locked
-- until its transaction ends. Such a role cannot pass its own clock, because all tenants share the clock.
CREATE FUNCTION sweep_expired(at_most integer, given_ms bigint DEFAULT NULL) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
  reached bytea := reached_tenant();
  until_ms bigint;
  swept integer;
BEGIN
  PERFORM check_scopes('{}'), sweep_listeners(reached);
  until_ms := clock_ms(CASE WHEN reached = '' THEN given_ms END);
  DELETE FROM entries e WHERE e.ctid = ANY (ARRAY(
    SELECT x.ctid FROM entries x
    WHERE x.expires_at > 0 AND x.expires_at <= until_ms AND (reached = '' OR EXISTS (
      SELECT FROM trees t WHERE t.tree_id = x.tree_id AND substring(t.scope FROM 1 FOR length(reached)) = reached
    ))
    ORDER BY x.expires_at LIMIT at_most FOR UPDATE SKIP LOCKED
  ));
  GET DIAGNOSTICS swept = ROW_COUNT;
  RETURN swept;
END
$$;

-- Removes the listeners whose sessions have ended. It locks the rows before it looks for their sessions: a new session may have the
-- process id of an ended one, and it registers by updating the row.
CREATE FUNCTION sweep_listeners(reached bytea) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  found_rows tid[] := ARRAY(
    SELECT l.ctid FROM listeners l WHERE reached = '' OR l.tenant = reached FOR UPDATE SKIP LOCKED
  );
BEGIN
  DELETE FROM listeners l
  WHERE l.ctid = ANY (found_rows) AND NOT EXISTS (SELECT FROM pg_stat_activity a WHERE a.pid = l.pid);
END
$$;
