-- Writing: one call for a batch of commits.

-- The next versions, and a time that is not before any other. A session lock that ends with the call, so
-- that nobody waits for a whole commit here; who fails in between loses his connection, and so the lock.
CREATE FUNCTION tick(given bigint, OUT version bigint, OUT at_ms bigint)
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  lock_key bigint := (SELECT seed FROM settings);
  latest bigint;
BEGIN
  PERFORM pg_advisory_lock(lock_key);
  latest := (SELECT last_value FROM clock);
  at_ms := greatest(coalesce(given, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint), latest);
  IF at_ms > latest THEN
    PERFORM setval('clock', at_ms);
  END IF;
  version := nextval('versions');
  PERFORM pg_advisory_unlock(lock_key);
END
$$;

-- What is appended to a log, or put into a tree, makes the tree if it is missing.
CREATE FUNCTION topic_of(of_scope bytea, of_tag smallint, seed bigint) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
  SELECT to_hex(hashtextextended(encode(of_scope, 'hex') || ':' || of_tag, seed))
$$;

-- Each tenant has a channel, so that nobody hears of another's doings.
CREATE FUNCTION channel_of(of_scope bytea, seed bigint) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
  SELECT 'annals_' || to_hex(hashtextextended(
    encode(substring(of_scope FROM 1 FOR position(':'::bytea IN of_scope)), 'hex'), seed + 1))
$$;

CREATE FUNCTION lock_scopes(scopes bytea[], exclusive boolean[]) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  seed bigint := (SELECT s.seed FROM settings s);
BEGIN
  -- The server has room for some thousand locks in all: who needs many has everything locked instead.
  IF cardinality(scopes) > 256 THEN
    PERFORM pg_advisory_xact_lock(seed + 2);
    RETURN;
  END IF;
  PERFORM pg_advisory_xact_lock_shared(seed + 2);
  -- In the order of their keys, so that two calls never wait for each other.
  PERFORM CASE WHEN o.x THEN pg_advisory_xact_lock(o.k) ELSE pg_advisory_xact_lock_shared(o.k) END
  FROM (
    SELECT hashtextextended(encode(u.s, 'hex'), seed) AS k, bool_or(u.x) AS x
    FROM unnest(scopes, exclusive) AS u (s, x) GROUP BY 1 ORDER BY 1
  ) o;
END
$$;

-- Deletes all of a scope. For logs it leaves a record; a trigger sees to it that nobody can do without.
CREATE FUNCTION drop_scope(of_scope bytea, at_version bigint, at_ms bigint) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  ids bigint[] := ARRAY(SELECT t.tree_id FROM trees t WHERE t.scope = of_scope);
BEGIN
  INSERT INTO deletions (tree_id, scope, tag, length, hash, version, committed_at, role_name, xid)
  SELECT t.tree_id, t.scope, t.tag, t.length, t.hash, at_version, at_ms, session_user, pg_current_xact_id()
  FROM trees t WHERE t.scope = of_scope AND t.length > 0;
  DELETE FROM events e WHERE e.tree_id = ANY (ids);
  DELETE FROM entries e WHERE e.tree_id = ANY (ids);
  DELETE FROM trees t WHERE t.scope = of_scope;
END
$$;

-- Operations take effect step by step; within a step those on one tree in their order. A drop begins a step.
CREATE FUNCTION commit_batch(
  given_ms bigint, steps integer,
  lock_list bytea[], lock_exclusive boolean[],
  tree_scopes bytea[], tree_tags smallint[], tree_kinds smallint[],
  point_txs integer[], point_trees integer[], point_keys bytea[], point_tails bytea[],
  point_sequences bigint[], point_versions bigint[],
  range_txs integer[], range_trees integer[], range_from bytea[], range_from_tails bytea[],
  range_to bytea[], range_to_tails bytea[], range_from_sequences bigint[], range_to_sequences bigint[],
  range_backwards boolean[], range_limits bigint[], range_digests bytea[],
  drop_txs integer[], drop_steps integer[], drop_scopes bytea[],
  put_txs integer[], put_steps integer[], put_trees integer[], put_keys bytea[], put_tails bytea[],
  put_values bytea[], put_expiries bigint[],
  append_txs integer[], append_steps integer[], append_trees integer[], append_times bigint[],
  append_body_hashes bytea[], append_bodies bytea[], append_dedupes bytea[], append_dedupe_tails bytea[],
  append_memos bytea[], append_twins integer[],
  OUT version bigint, OUT at_ms bigint,
  OUT lost_txs integer[], OUT lost_points integer[], OUT lost_ranges integer[],
  OUT sequences bigint[], OUT hashes bytea[], OUT times bigint[], OUT duplicates boolean[], OUT memos bytea[]
)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
#variable_conflict use_variable
DECLARE
  base bigint;
  step integer;
  r record;
  twin integer;
  -- The log that is being appended to, and its head.
  tree integer := 0;
  id bigint;
  len bigint;
  head bytea;
  last bigint;
  stamp bigint;
  link bytea;
  -- For each append: its log's id, the hash before it.
  ids bigint[];
  prevs bytea[];
  -- For each log: its head after the step.
  head_trees integer[];
  head_ids bigint[];
  head_lengths bigint[];
  head_hashes bytea[];
  head_times bigint[];
  head_versions bigint[];
BEGIN
  PERFORM check_scopes(lock_list);
  PERFORM lock_scopes(lock_list, lock_exclusive);
  -- Only now: versions and times are in the order in which others see what is committed.
  SELECT t.version, t.at_ms INTO base, at_ms FROM tick(given_ms) t;
  version := base;

  IF cardinality(point_txs) > 0 THEN
    FOR r IN
      SELECT p.i, p.tx
      FROM unnest(point_txs, point_versions) WITH ORDINALITY AS p (tx, version, i)
      LEFT JOIN read_points(
        at_ms, false,
        ARRAY(SELECT tree_scopes[t] FROM unnest(point_trees) t),
        ARRAY(SELECT tree_tags[t] FROM unnest(point_trees) t),
        ARRAY(SELECT tree_kinds[t] FROM unnest(point_trees) t),
        point_keys, point_tails, point_sequences
      ) f ON f.i = p.i
      WHERE coalesce(f.version, 0) <> p.version ORDER BY p.i
    LOOP
      IF lost_txs IS NULL OR NOT r.tx = ANY (lost_txs) THEN
        lost_txs := lost_txs || r.tx;
        lost_points := lost_points || r.i::integer;
        lost_ranges := lost_ranges || NULL::integer;
      END IF;
    END LOOP;
  END IF;

  FOR i IN 1 .. cardinality(range_txs) LOOP
    CONTINUE WHEN range_txs[i] = ANY (lost_txs);
    IF range_digests[i] <> (
      SELECT sha256(coalesce(string_agg(int8send(f.version) || int4send(length(f.key)) || f.key, ''::bytea), ''))
      FROM read_range(
        at_ms, false, tree_scopes[range_trees[i]], tree_tags[range_trees[i]], tree_kinds[range_trees[i]],
        range_from[i], range_from_tails[i], range_to[i], range_to_tails[i],
        range_from_sequences[i], range_to_sequences[i], range_backwards[i], range_limits[i]
      ) f
    ) THEN
      lost_txs := lost_txs || range_txs[i];
      lost_points := lost_points || NULL::integer;
      lost_ranges := lost_ranges || i;
    END IF;
  END LOOP;

  FOR step IN 1 .. steps LOOP
    FOR i IN 1 .. cardinality(drop_txs) LOOP
      CONTINUE WHEN drop_steps[i] <> step OR drop_txs[i] = ANY (lost_txs);
      PERFORM drop_scope(drop_scopes[i], base + drop_txs[i], at_ms);
    END LOOP;

    IF cardinality(put_txs) > 0 THEN
      INSERT INTO trees (tree_id, scope, tag)
      SELECT nextval('tree_ids'), tree_scopes[w.tree], tree_tags[w.tree]
      FROM (
        SELECT DISTINCT p.tree FROM unnest(put_txs, put_steps, put_trees, put_values) AS p (tx, step, tree, value)
        WHERE p.step = step AND p.value IS NOT NULL AND (lost_txs IS NULL OR NOT p.tx = ANY (lost_txs))
      ) w
      WHERE NOT EXISTS (
        SELECT FROM trees t WHERE t.scope = tree_scopes[w.tree] AND t.tag = tree_tags[w.tree]
      );
      WITH written AS MATERIALIZED (
        SELECT DISTINCT ON (p.tree, p.key, p.tail) p.*
        FROM unnest(put_txs, put_steps, put_trees, put_keys, put_tails, put_values, put_expiries)
          WITH ORDINALITY AS p (tx, step, tree, key, tail, value, expires_at, i)
        WHERE p.step = step AND (lost_txs IS NULL OR NOT p.tx = ANY (lost_txs))
        ORDER BY p.tree, p.key, p.tail, p.i DESC
      ), placed AS MATERIALIZED (
        SELECT w.*, t.tree_id, CASE WHEN w.tail = '' THEN ''::bytea ELSE sha256(w.tail) END AS tail_id
        FROM written w
        CROSS JOIN LATERAL (
          SELECT t.tree_id FROM trees t
          WHERE t.scope = tree_scopes[w.tree] AND t.tag = tree_tags[w.tree] LIMIT 1
        ) t
      ), deleted AS (
        DELETE FROM entries e USING placed p
        WHERE p.value IS NULL AND e.tree_id = p.tree_id AND e.key = p.key AND e.tail_id = p.tail_id
      )
      INSERT INTO entries AS e (tree_id, key, tail, tail_id, value, version, committed_at, expires_at)
      SELECT p.tree_id, p.key, p.tail, p.tail_id, p.value, base + p.tx, at_ms, p.expires_at
      FROM placed p WHERE p.value IS NOT NULL
      ON CONFLICT (tree_id, key, tail_id) DO UPDATE
      SET value = excluded.value, version = excluded.version,
        committed_at = excluded.committed_at, expires_at = excluded.expires_at;
    END IF;

    IF cardinality(append_txs) > 0 THEN
      IF step = 1 THEN
        ids := array_fill(NULL::bigint, ARRAY[cardinality(append_txs)]);
        prevs := array_fill(NULL::bytea, ARRAY[cardinality(append_txs)]);
        sequences := ids;
        hashes := prevs;
        times := ids;
        duplicates := array_fill(NULL::boolean, ARRAY[cardinality(append_txs)]);
        memos := prevs;
      END IF;
      tree := 0;
      head_trees := '{}'; head_ids := '{}'; head_lengths := '{}';
      head_hashes := '{}'; head_times := '{}'; head_versions := '{}';
      FOR r IN
        SELECT a.i::integer AS i, a.tx, a.tree, a.time, a.body_hash, a.memo, a.twin,
          t.tree_id, t.length, t.hash, t.last_time,
          d.sequence AS known_sequence, d.hash AS known_hash, d.time AS known_time, d.memo AS known_memo
        FROM unnest(
            append_txs, append_steps, append_trees, append_times, append_body_hashes,
            append_dedupes, append_dedupe_tails, append_memos, append_twins
          ) WITH ORDINALITY AS a (tx, step, tree, time, body_hash, dedupe, dedupe_tail, memo, twin, i)
        LEFT JOIN LATERAL (
          SELECT t.tree_id, t.length, t.hash, t.last_time FROM trees t
          WHERE t.scope = tree_scopes[a.tree] AND t.tag = tree_tags[a.tree] LIMIT 1
        ) t ON true
        LEFT JOIN LATERAL (
          SELECT e.sequence, e.hash, e.time, e.memo FROM events e
          WHERE e.tree_id = t.tree_id AND e.dedupe = a.dedupe AND e.dedupe_tail = a.dedupe_tail LIMIT 1
        ) d ON true
        WHERE a.step = step AND (lost_txs IS NULL OR NOT a.tx = ANY (lost_txs))
        ORDER BY a.tree, a.i
      LOOP
        IF r.tree <> tree THEN
          tree := r.tree;
          id := r.tree_id;
          len := coalesce(r.length, 0);
          head := coalesce(r.hash, '\x0000000000000000000000000000000000000000000000000000000000000000');
          last := coalesce(r.last_time, 0);
        END IF;
        -- The last append before it with the same key in this step, if that one's transaction is not lost.
        twin := r.twin;
        WHILE twin IS NOT NULL AND append_txs[twin] = ANY (lost_txs) LOOP
          twin := append_twins[twin];
        END LOOP;
        IF twin IS NOT NULL THEN
          sequences[r.i] := sequences[twin];
          hashes[r.i] := hashes[twin];
          times[r.i] := times[twin];
          memos[r.i] := memos[twin];
          duplicates[r.i] := true;
        ELSIF r.known_sequence IS NOT NULL THEN
          sequences[r.i] := r.known_sequence;
          hashes[r.i] := r.known_hash;
          times[r.i] := r.known_time;
          memos[r.i] := r.known_memo;
          duplicates[r.i] := true;
        ELSE
          IF id IS NULL THEN
            id := nextval('tree_ids');
          END IF;
          stamp := coalesce(r.time, greatest(at_ms, last));
          link := sha256('annals:link:1\000'::bytea || head || int8send(len) || int8send(stamp) || r.body_hash);
          ids[r.i] := id;
          prevs[r.i] := head;
          sequences[r.i] := len;
          hashes[r.i] := link;
          times[r.i] := stamp;
          memos[r.i] := r.memo;
          duplicates[r.i] := false;
          len := len + 1;
          head := link;
          last := stamp;
          IF head_trees[cardinality(head_trees)] = tree THEN
            head_lengths[cardinality(head_trees)] := len;
            head_hashes[cardinality(head_trees)] := head;
            head_times[cardinality(head_trees)] := last;
            head_versions[cardinality(head_trees)] := base + r.tx;
          ELSE
            head_trees := head_trees || tree;
            head_ids := head_ids || id;
            head_lengths := head_lengths || len;
            head_hashes := head_hashes || head;
            head_times := head_times || last;
            head_versions := head_versions || (base + r.tx);
          END IF;
        END IF;
      END LOOP;

      INSERT INTO events (
        tree_id, sequence, version, time, committed_at, prev_hash, hash, body,
        dedupe, dedupe_tail, dedupe_tail_id, memo
      )
      SELECT a.id, a.sequence, base + a.tx, a.time, at_ms, a.prev, a.hash, a.body,
        a.dedupe, a.dedupe_tail, CASE WHEN a.dedupe_tail = '' THEN ''::bytea ELSE sha256(a.dedupe_tail) END, a.memo
      FROM unnest(
        append_txs, append_steps, ids, sequences, times, prevs, hashes, append_bodies,
        append_dedupes, append_dedupe_tails, append_memos
      ) AS a (tx, step, id, sequence, time, prev, hash, body, dedupe, dedupe_tail, memo)
      WHERE a.step = step AND a.id IS NOT NULL;
      INSERT INTO trees (tree_id, scope, tag, length, hash, last_time, version, committed_at)
      SELECT h.id, tree_scopes[h.tree], tree_tags[h.tree], h.length, h.hash, h.time, h.version, at_ms
      FROM unnest(head_ids, head_trees, head_lengths, head_hashes, head_times, head_versions)
        AS h (id, tree, length, hash, time, version)
      ON CONFLICT (scope, tag) DO UPDATE
      SET length = excluded.length, hash = excluded.hash, last_time = excluded.last_time,
        version = excluded.version, committed_at = excluded.committed_at;
    END IF;
  END LOOP;

  PERFORM announce(
    ARRAY(
      SELECT w.tree FROM (
        SELECT a.tx, a.tree FROM unnest(append_txs, append_trees, ids) AS a (tx, tree, id) WHERE a.id IS NOT NULL
        UNION ALL
        SELECT p.tx, p.tree FROM unnest(put_txs, put_trees) AS p (tx, tree)
      ) w WHERE lost_txs IS NULL OR NOT w.tx = ANY (lost_txs)
    ),
    tree_scopes, tree_tags,
    ARRAY(
      SELECT d.scope FROM unnest(drop_txs, drop_scopes) AS d (tx, scope)
      WHERE lost_txs IS NULL OR NOT d.tx = ANY (lost_txs)
    )
  );
END
$$;

-- Tells who listens. One message for a tenant's part of a batch: sending takes a lock of the whole server.
CREATE FUNCTION announce(trees integer[], tree_scopes bytea[], tree_tags smallint[], dropped bytea[]) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  seed bigint := (SELECT s.seed FROM settings s);
BEGIN
  PERFORM pg_notify(m.channel, CASE WHEN length(m.topics) < 7900 THEN m.topics ELSE '*' END)
  FROM (
    SELECT channel_of(w.scope, seed) AS channel, string_agg(topic_of(w.scope, w.tag, seed), ',') AS topics
    FROM (
      SELECT DISTINCT tree_scopes[t.tree] AS scope, tree_tags[t.tree] AS tag FROM unnest(trees) AS t (tree)
      UNION
      SELECT d.scope, 0::smallint FROM unnest(dropped) AS d (scope)
    ) w
    GROUP BY 1
  ) m;
END
$$;
