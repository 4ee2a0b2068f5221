-- What a commit does to entries and whole scopes.

-- The tree with this name; made if it is missing.
CREATE FUNCTION tree_named(of_scope bytea, of_tag smallint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  id bigint := (SELECT t.tree_id FROM trees t WHERE t.scope = of_scope AND t.tag = of_tag);
BEGIN
  IF id IS NULL THEN
    id := nextval('tree_ids');
    INSERT INTO trees (tree_id, scope, tag) VALUES (id, of_scope, of_tag);
  END IF;
  RETURN id;
END
$$;

-- Deletes all of a scope. For logs it leaves a record; a trigger sees to it that nobody can do without.
CREATE FUNCTION drop_scope(of_scope bytea, at_version bigint, at_ms bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  ids bigint[] := ARRAY(SELECT t.tree_id FROM trees t WHERE t.scope = of_scope);
BEGIN
  INSERT INTO deletions (tree_id, scope, tag, length, hash, version, committed_at, role_name, xid)
  SELECT t.tree_id, t.scope, t.tag, t.length, t.hash, at_version, at_ms, session_user, pg_current_xact_id()
  FROM trees t WHERE t.scope = of_scope AND t.length > 0;
  -- What a feed lists stays listed; what lies in this scope goes.
  INSERT INTO feed_remains (feed_id, version, feed_count, sequence, time, committed_at, scope)
  SELECT e.feed_id, e.version, e.feed_count, e.sequence, e.time, e.committed_at, of_scope
  FROM events e WHERE e.tree_id = ANY (ids) AND e.feed_id IS NOT NULL AND NOT e.feed_id = ANY (ids);
  DELETE FROM feed_remains r WHERE r.feed_id = ANY (ids);
  DELETE FROM events e WHERE e.tree_id = ANY (ids);
  DELETE FROM entries e WHERE e.tree_id = ANY (ids);
  DELETE FROM trees t WHERE t.scope = of_scope;
END
$$;

-- Which of the reads would find another version now. Entries are what most look at, and cheap to look up.
CREATE FUNCTION wrong_points(
  clock_at bigint, tree_scopes bytea[], tree_tags smallint[],
  trees_read integer[], kinds_read smallint[], keys bytea[], tails bytea[], sequences bigint[], versions bigint[]
) RETURNS integer[] LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
  wrong integer[];
  found_versions bigint[];
  r record;
BEGIN
  IF 0 = ALL (kinds_read) THEN
    SELECT array_agg(p.i::integer) INTO wrong
    FROM unnest(trees_read, keys, tails, versions) WITH ORDINALITY AS p (tree, key, tail, version, i)
    LEFT JOIN LATERAL (
      SELECT t.tree_id FROM trees t WHERE t.scope = tree_scopes[p.tree] AND t.tag = tree_tags[p.tree] LIMIT 1
    ) t ON true
    LEFT JOIN LATERAL (
      SELECT e.version FROM entries e
      WHERE e.tree_id = t.tree_id AND e.key = p.key AND e.tail = p.tail AND (e.expires_at = 0 OR e.expires_at > clock_at)
      LIMIT 1
    ) e ON true
    WHERE coalesce(e.version, 0) <> p.version;
    RETURN wrong;
  END IF;
  found_versions := array_fill(0::bigint, ARRAY[cardinality(trees_read)]);
  FOR r IN
    SELECT f.i::integer AS i, f.version
    FROM read_points(
      clock_at, false,
      ARRAY(SELECT tree_scopes[t] FROM unnest(trees_read) t),
      ARRAY(SELECT tree_tags[t] FROM unnest(trees_read) t),
      kinds_read,
      keys, tails, sequences
    ) f
  LOOP
    found_versions[r.i] := r.version;
  END LOOP;
  FOR i IN 1 .. cardinality(trees_read) LOOP
    IF found_versions[i] <> versions[i] THEN
      wrong := wrong || i;
    END IF;
  END LOOP;
  RETURN wrong;
END
$$;

-- Puts and deletions of one step; the last one to a key counts.
CREATE FUNCTION put_entries(
  of_step integer, base bigint, at_ms bigint, lost_txs integer[], tree_scopes bytea[], tree_tags smallint[],
  put_txs integer[], put_steps integer[], put_trees integer[], put_keys bytea[], put_tails bytea[],
  put_values bytea[], put_expiries bigint[], put_times bigint[]
) RETURNS boolean LANGUAGE plpgsql AS $$
#variable_conflict use_variable
BEGIN
  INSERT INTO trees (tree_id, scope, tag)
  SELECT nextval('tree_ids'), tree_scopes[w.tree], tree_tags[w.tree]
  FROM (
    SELECT DISTINCT p.tree FROM unnest(put_txs, put_steps, put_trees, put_values) AS p (tx, step, tree, value)
    WHERE p.step = of_step AND p.value IS NOT NULL AND (lost_txs IS NULL OR NOT p.tx = ANY (lost_txs))
  ) w
  ON CONFLICT (scope, tag) DO NOTHING;
  WITH written AS MATERIALIZED (
    SELECT DISTINCT ON (p.tree, p.key, p.tail) p.*
    FROM unnest(put_txs, put_steps, put_trees, put_keys, put_tails, put_values, put_expiries, put_times)
      WITH ORDINALITY AS p (tx, step, tree, key, tail, value, expires_at, time, i)
    WHERE p.step = of_step AND (lost_txs IS NULL OR NOT p.tx = ANY (lost_txs))
    ORDER BY p.tree, p.key, p.tail, p.i DESC
  ), placed AS MATERIALIZED (
    SELECT w.*, t.tree_id, CASE WHEN w.tail = '' THEN ''::bytea ELSE sha256(w.tail) END AS tail_id
    FROM written w
    CROSS JOIN LATERAL (
      SELECT t.tree_id FROM trees t
      WHERE t.scope = tree_scopes[w.tree] AND t.tag = tree_tags[w.tree] LIMIT 1
    ) t
  ), deleted AS (
    DELETE FROM entries e WHERE e.ctid = ANY (ARRAY(
      SELECT f.ctid FROM placed p
      CROSS JOIN LATERAL (
        SELECT x.ctid FROM entries x
        WHERE x.tree_id = p.tree_id AND x.key = p.key AND x.tail_id = p.tail_id LIMIT 1
      ) f
      WHERE p.value IS NULL
    ))
  )
  INSERT INTO entries AS e (tree_id, key, tail, tail_id, value, version, committed_at, expires_at)
  -- A time that the caller gives is not after the commit's: readers take it for a time that has passed.
  SELECT p.tree_id, p.key, p.tail, p.tail_id, p.value, base + p.tx, least(p.time, at_ms), p.expires_at
  FROM placed p WHERE p.value IS NOT NULL
  ON CONFLICT (tree_id, key, tail_id) DO UPDATE
  SET value = excluded.value, version = excluded.version,
    committed_at = excluded.committed_at, expires_at = excluded.expires_at;
  RETURN true;
END
$$;

-- Removes entries whose time has passed by the clock, which nobody sees any more. It waits for nobody: rows that somebody is writing
-- or sweeping are left for the next time. A role sweeps what it reaches: one that never ends its transaction keeps what it has swept
-- locked. The clock is everybody's: who reaches one tenant can't give another.
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

-- Forgets sessions that have ended. The rows are locked first and looked up then: a new session may have got the number of a dead
-- one, and registers by changing the row.
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
