-- Writing: one call for a batch of commits.

-- What is called here runs in one session all the time, and mostly with one or a few items. So helpers return a value
-- and are assigned from, which PL/pgSQL does without a query; a query costs more than what it would do.

-- The next versions, and a time that is not before any other. A session lock that ends with the call, so
-- that nobody waits for a whole commit here; who fails in between loses his connection, and so the lock.
CREATE FUNCTION tick(seed bigint, given bigint) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
  latest bigint;
  at_ms bigint;
  version bigint;
BEGIN
  IF pg_advisory_lock(seed) IS NULL THEN
    RAISE 'no lock';
  END IF;
  latest := coalesce(pg_sequence_last_value('clock'), 0);
  at_ms := greatest(coalesce(given, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint), latest);
  IF at_ms > latest THEN
    latest := setval('clock', at_ms);
  END IF;
  version := nextval('versions');
  IF NOT pg_advisory_unlock(seed) THEN
    RAISE 'the lock was not held';
  END IF;
  RETURN ARRAY[version, at_ms];
END
$$;

-- What the first entry of a log is linked to.
CREATE FUNCTION zero_hash() RETURNS bytea LANGUAGE sql IMMUTABLE AS $$
  SELECT '\x0000000000000000000000000000000000000000000000000000000000000000'::bytea
$$;

CREATE FUNCTION topic_of(of_scope bytea, of_tag integer, seed bigint) RETURNS text LANGUAGE sql IMMUTABLE AS $$
  SELECT to_hex(hashtextextended(encode(of_scope, 'hex'), seed + 16 + of_tag))
$$;

-- Each tenant has a channel, so that nobody hears of another's doings.
CREATE FUNCTION channel_of(tenant bytea, seed bigint) RETURNS text LANGUAGE sql IMMUTABLE AS $$
  SELECT 'annals_' || to_hex(hashtextextended(encode(tenant, 'hex'), seed + 1))
$$;

-- The first part of a scope, with the colon behind it.
CREATE FUNCTION tenant_of(scope bytea) RETURNS bytea LANGUAGE sql IMMUTABLE AS $$
  SELECT substring(scope FROM 1 FOR position(':'::bytea IN scope))
$$;

-- Scopes that are written are locked for others, those that are read only for writers.
CREATE FUNCTION lock_scopes(seed bigint, scopes bytea[], exclusive boolean[]) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  a bigint;
  b bigint;
BEGIN
  -- The server has room for some thousand locks in all: who needs many has everything locked instead.
  IF cardinality(scopes) > 256 THEN
    RETURN pg_advisory_xact_lock(seed + 2) IS NOT NULL;
  ELSIF cardinality(scopes) = 1 AND exclusive[1] THEN
    RETURN pg_advisory_xact_lock_shared(seed + 2) IS NOT NULL
      AND pg_advisory_xact_lock(hashtextextended(encode(scopes[1], 'hex'), seed)) IS NOT NULL;
  ELSIF cardinality(scopes) = 2 AND exclusive[1] AND exclusive[2] THEN
    a := hashtextextended(encode(scopes[1], 'hex'), seed);
    b := hashtextextended(encode(scopes[2], 'hex'), seed);
    RETURN pg_advisory_xact_lock_shared(seed + 2) IS NOT NULL
      AND pg_advisory_xact_lock(least(a, b)) IS NOT NULL AND pg_advisory_xact_lock(greatest(a, b)) IS NOT NULL;
  END IF;
  PERFORM pg_advisory_xact_lock_shared(seed + 2);
  -- In the order of their keys, so that two calls never wait for each other.
  PERFORM CASE WHEN o.x THEN pg_advisory_xact_lock(o.k) ELSE pg_advisory_xact_lock_shared(o.k) END
  FROM (
    SELECT hashtextextended(encode(u.s, 'hex'), seed) AS k, bool_or(u.x) AS x
    FROM unnest(scopes, exclusive) AS u (s, x) GROUP BY 1 ORDER BY 1
  ) o;
  RETURN true;
END
$$;

-- Whoever listens for a tenant holds a lock of his session, so that nobody has to be told where nobody is: sending
-- takes a lock of the whole server until the commit is on disk. A writer who finds none holds his scopes until he has
-- committed; who begins to listen waits for them (`wait_for_writers`), so that neither misses the other.
CREATE FUNCTION has_listener(tenant bytea, seed bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  key bigint := hashtextextended(encode(tenant, 'hex'), seed + 3);
BEGIN
  RETURN tenant IS NOT NULL AND NOT (pg_try_advisory_lock(key) AND pg_advisory_unlock(key));
END
$$;

CREATE FUNCTION has_listeners(tenants bytea[], seed bigint) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  FOR i IN 1 .. cardinality(tenants) LOOP
    IF has_listener(tenants[i], seed) THEN
      RETURN true;
    END IF;
  END LOOP;
  RETURN false;
END
$$;

-- Tells who listens, in few messages. A dropped scope has tag 0.
CREATE FUNCTION announce(seed bigint, scopes bytea[], tags smallint[]) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  tenant bytea;
  topics text;
  ok boolean;
BEGIN
  FOR i IN 1 .. cardinality(scopes) LOOP
    IF tenant IS NULL OR tenant_of(scopes[i]) <> tenant OR length(topics) > 7900 THEN
      ok := topics IS NOT NULL AND pg_notify(channel_of(tenant, seed), topics) IS NOT NULL;
      tenant := tenant_of(scopes[i]);
      topics := CASE WHEN has_listener(tenant, seed) THEN topic_of(scopes[i], tags[i], seed) END;
    ELSIF topics IS NOT NULL THEN
      topics := topics || ',' || topic_of(scopes[i], tags[i], seed);
    END IF;
  END LOOP;
  RETURN topics IS NOT NULL AND pg_notify(channel_of(tenant, seed), topics) IS NOT NULL;
END
$$;

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

-- Operations take effect step by step; within a step those on one tree in their order. A drop begins a step.
CREATE FUNCTION commit_batch(
  given_ms bigint, steps integer,
  lock_list bytea[], lock_exclusive boolean[],
  tree_scopes bytea[], tree_tags smallint[], tree_kinds smallint[],
  point_txs integer[], point_trees integer[], point_keys bytea[], point_tails bytea[],
  point_sequences bigint[], point_versions bigint[],
  range_txs integer[], range_trees integer[], range_from bytea[], range_from_tails bytea[],
  range_to bytea[], range_to_tails bytea[], range_from_sequences bigint[], range_to_sequences bigint[],
  range_from_counts integer[], range_to_counts integer[],
  range_backwards boolean[], range_limits bigint[], range_digests bytea[],
  drop_txs integer[], drop_steps integer[], drop_scopes bytea[],
  put_txs integer[], put_steps integer[], put_trees integer[], put_keys bytea[], put_tails bytea[],
  put_values bytea[], put_expiries bigint[],
  append_txs integer[], append_steps integer[], append_trees integer[], append_times bigint[],
  append_body_hashes bytea[], append_bodies bytea[], append_dedupes bytea[], append_dedupe_tails bytea[],
  append_memos bytea[], append_twins integer[], append_feeds integer[], append_counts integer[],
  -- One step, and at most one append to each log.
  is_flat boolean, feed_trees integer[],
  written_scopes bytea[], written_tags smallint[], written_tenants bytea[],
  OUT version bigint, OUT at_ms bigint,
  OUT lost_txs integer[], OUT lost_points integer[], OUT lost_ranges integer[],
  OUT sequences bigint[], OUT hashes bytea[], OUT times bigint[], OUT duplicates boolean[],
  -- Of duplicates; the others have what they brought.
  OUT memos bytea[]
)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
#variable_conflict use_variable
DECLARE
  seed bigint;
  tenant bytea;
  is_known boolean;
  ok boolean;
  now_at bigint[];
  base bigint;
  step integer;
  r record;
  twin integer;
  found_versions bigint[];
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
  -- By the feed's place among the trees.
  feed_ids bigint[];
  -- What the statement for flat batches has done: places among the appends, and their answers.
  done integer[];
  done_sequences bigint[];
  done_hashes bytea[];
  done_times bigint[];
  told_scopes bytea[];
  told_tags smallint[];
BEGIN
  SELECT s.seed, a.tenant, a.role_name IS NOT NULL INTO seed, tenant, is_known
  FROM settings s LEFT JOIN access a ON a.role_name = session_user;
  ok := (is_known AND tenant IS NULL) OR check_scopes(lock_list);
  ok := lock_scopes(seed, lock_list, lock_exclusive);
  -- Only now: versions and times are in the order in which others see what is committed.
  now_at := tick(seed, given_ms);
  base := now_at[1];
  version := base;
  at_ms := now_at[2];

  IF cardinality(point_txs) > 0 THEN
    found_versions := array_fill(0::bigint, ARRAY[cardinality(point_txs)]);
    FOR r IN
      SELECT f.i::integer AS i, f.version
      FROM read_points(
        at_ms, false,
        ARRAY(SELECT tree_scopes[t] FROM unnest(point_trees) t),
        ARRAY(SELECT tree_tags[t] FROM unnest(point_trees) t),
        ARRAY(SELECT tree_kinds[t] FROM unnest(point_trees) t),
        point_keys, point_tails, point_sequences
      ) f
    LOOP
      found_versions[r.i] := r.version;
    END LOOP;
    FOR i IN 1 .. cardinality(point_txs) LOOP
      IF found_versions[i] <> point_versions[i] AND (lost_txs IS NULL OR NOT point_txs[i] = ANY (lost_txs)) THEN
        lost_txs := lost_txs || point_txs[i];
        lost_points := lost_points || i;
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
        range_from_sequences[i], range_to_sequences[i], range_from_counts[i], range_to_counts[i],
        range_backwards[i], range_limits[i]
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
      ON CONFLICT (scope, tag) DO NOTHING;
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
        times := array_fill(at_ms, ARRAY[cardinality(append_txs)]);
        duplicates := array_fill(false, ARRAY[cardinality(append_txs)]);
        memos := prevs;
      END IF;
      feed_ids := array_fill(NULL::bigint, ARRAY[cardinality(tree_scopes)]);
      FOR i IN 1 .. cardinality(feed_trees) LOOP
        feed_ids[feed_trees[i]] := tree_named(tree_scopes[feed_trees[i]], tree_tags[feed_trees[i]]);
      END LOOP;
      IF is_flat AND lost_txs IS NULL THEN
        -- Mostly each log gets one entry, is there, and does not know the key: then all are linked in one statement.
        WITH found AS MATERIALIZED (
          SELECT a.i::integer AS i, a.tx, a.tree, a.body, a.dedupe, a.dedupe_tail, a.memo, a.feed, a.count,
            t.tree_id, t.length, t.prev, s.stamp,
            sha256('annals:link:1\000'::bytea || t.prev || int8send(t.length) || int8send(s.stamp) || a.body_hash) AS link
          FROM unnest(
              append_txs, append_trees, append_times, append_body_hashes, append_bodies,
              append_dedupes, append_dedupe_tails, append_memos, append_feeds, append_counts
            ) WITH ORDINALITY AS a (tx, tree, time, body_hash, body, dedupe, dedupe_tail, memo, feed, count, i)
          CROSS JOIN LATERAL (
            SELECT t.tree_id, t.length, coalesce(t.hash, zero_hash()) AS prev, t.last_time FROM trees t
            WHERE t.scope = tree_scopes[a.tree] AND t.tag = tree_tags[a.tree] LIMIT 1
          ) t
          CROSS JOIN LATERAL (SELECT coalesce(a.time, greatest(at_ms, t.last_time)) AS stamp) s
          LEFT JOIN LATERAL (
            SELECT e.sequence FROM events e
            WHERE e.tree_id = t.tree_id AND e.dedupe = a.dedupe AND e.dedupe_tail = a.dedupe_tail LIMIT 1
          ) d ON true
          WHERE d.sequence IS NULL
        ), inserted AS (
          INSERT INTO events (
            tree_id, sequence, version, time, committed_at, prev_hash, hash, body,
            dedupe, dedupe_tail, dedupe_tail_id, memo, feed_id, feed_count
          )
          SELECT f.tree_id, f.length, base + f.tx, f.stamp, at_ms, f.prev, f.link, f.body,
            f.dedupe, f.dedupe_tail, CASE WHEN f.dedupe_tail = '' THEN ''::bytea ELSE sha256(f.dedupe_tail) END,
            f.memo, feed_ids[f.feed], CASE WHEN f.feed IS NOT NULL THEN f.count END
          FROM found f
        ), moved AS (
          INSERT INTO trees (tree_id, scope, tag, length, hash, last_time, version, committed_at)
          SELECT f.tree_id, tree_scopes[f.tree], tree_tags[f.tree], f.length + 1, f.link, f.stamp, base + f.tx, at_ms
          FROM found f
          ON CONFLICT (tree_id) DO UPDATE
          SET length = excluded.length, hash = excluded.hash, last_time = excluded.last_time,
            version = excluded.version, committed_at = excluded.committed_at
        )
        SELECT array_agg(f.i ORDER BY f.i), array_agg(f.length ORDER BY f.i), array_agg(f.link ORDER BY f.i),
          array_agg(f.stamp ORDER BY f.i)
        INTO done, done_sequences, done_hashes, done_times FROM found f;
        IF cardinality(done) = cardinality(append_txs) THEN
          sequences := done_sequences;
          hashes := done_hashes;
          times := done_times;
          EXIT;
        END IF;
        FOR i IN 1 .. coalesce(cardinality(done), 0) LOOP
          sequences[done[i]] := done_sequences[i];
          hashes[done[i]] := done_hashes[i];
          times[done[i]] := done_times[i];
        END LOOP;
      END IF;
      tree := 0;
      head_trees := '{}'; head_ids := '{}'; head_lengths := '{}';
      head_hashes := '{}'; head_times := '{}'; head_versions := '{}';
      FOR r IN
        SELECT a.i::integer AS i, a.tx, a.tree, a.time, a.body_hash, a.twin,
          t.tree_id, t.length, t.hash, t.last_time,
          d.sequence AS known_sequence, d.hash AS known_hash, d.time AS known_time, d.memo AS known_memo
        FROM unnest(
            append_txs, append_steps, append_trees, append_times, append_body_hashes,
            append_dedupes, append_dedupe_tails, append_twins
          ) WITH ORDINALITY AS a (tx, step, tree, time, body_hash, dedupe, dedupe_tail, twin, i)
        LEFT JOIN LATERAL (
          SELECT t.tree_id, t.length, t.hash, t.last_time FROM trees t
          WHERE t.scope = tree_scopes[a.tree] AND t.tag = tree_tags[a.tree] LIMIT 1
        ) t ON true
        LEFT JOIN LATERAL (
          SELECT e.sequence, e.hash, e.time, e.memo FROM events e
          WHERE e.tree_id = t.tree_id AND e.dedupe = a.dedupe AND e.dedupe_tail = a.dedupe_tail LIMIT 1
        ) d ON true
        WHERE a.step = step AND sequences[a.i] IS NULL AND (lost_txs IS NULL OR NOT a.tx = ANY (lost_txs))
        ORDER BY a.tree, a.i
      LOOP
        IF r.tree <> tree THEN
          tree := r.tree;
          id := r.tree_id;
          len := coalesce(r.length, 0);
          head := coalesce(r.hash, zero_hash());
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
          memos[r.i] := coalesce(memos[twin], append_memos[twin]);
          duplicates[r.i] := true;
        ELSIF r.known_sequence IS NOT NULL THEN
          sequences[r.i] := r.known_sequence;
          hashes[r.i] := r.known_hash;
          times[r.i] := r.known_time;
          memos[r.i] := r.known_memo;
          duplicates[r.i] := true;
        ELSE
          IF id IS NULL THEN
            INSERT INTO trees (tree_id, scope, tag) VALUES (nextval('tree_ids'), tree_scopes[tree], tree_tags[tree])
            RETURNING trees.tree_id INTO id;
          END IF;
          stamp := coalesce(r.time, greatest(at_ms, last));
          link := sha256('annals:link:1\000'::bytea || head || int8send(len) || int8send(stamp) || r.body_hash);
          ids[r.i] := id;
          prevs[r.i] := head;
          sequences[r.i] := len;
          hashes[r.i] := link;
          IF stamp <> at_ms THEN
            times[r.i] := stamp;
          END IF;
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
        dedupe, dedupe_tail, dedupe_tail_id, memo, feed_id, feed_count
      )
      SELECT a.id, a.sequence, base + a.tx, a.time, at_ms, a.prev, a.hash, a.body,
        a.dedupe, a.dedupe_tail, CASE WHEN a.dedupe_tail = '' THEN ''::bytea ELSE sha256(a.dedupe_tail) END, a.memo,
        feed_ids[a.feed], CASE WHEN a.feed IS NOT NULL THEN a.count END
      FROM unnest(
        append_txs, append_steps, ids, sequences, times, prevs, hashes, append_bodies,
        append_dedupes, append_dedupe_tails, append_memos, append_feeds, append_counts
      ) AS a (tx, step, id, sequence, time, prev, hash, body, dedupe, dedupe_tail, memo, feed, count)
      WHERE a.step = step AND a.id IS NOT NULL;
      -- Each is there already. An UPDATE would join, and a join that was planned on an empty table would stay as it is.
      INSERT INTO trees (tree_id, scope, tag, length, hash, last_time, version, committed_at)
      SELECT h.id, tree_scopes[h.tree], tree_tags[h.tree], h.length, h.hash, h.time, h.version, at_ms
      FROM unnest(head_ids, head_trees, head_lengths, head_hashes, head_times, head_versions)
        AS h (id, tree, length, hash, time, version)
      ON CONFLICT (tree_id) DO UPDATE
      SET length = excluded.length, hash = excluded.hash, last_time = excluded.last_time,
        version = excluded.version, committed_at = excluded.committed_at;
    END IF;
  END LOOP;

  IF NOT has_listeners(written_tenants, seed) THEN
    RETURN;
  ELSIF lost_txs IS NULL THEN
    ok := announce(seed, written_scopes, written_tags);
  ELSE
    SELECT array_agg(w.scope), array_agg(w.tag) INTO told_scopes, told_tags FROM (
      SELECT tree_scopes[a.tree], tree_tags[a.tree]
      FROM unnest(append_txs || append_txs, append_trees || append_feeds) AS a (tx, tree)
      WHERE NOT a.tx = ANY (lost_txs) AND a.tree IS NOT NULL
      UNION
      SELECT tree_scopes[p.tree], tree_tags[p.tree]
      FROM unnest(put_txs, put_trees) AS p (tx, tree) WHERE NOT p.tx = ANY (lost_txs)
      UNION
      SELECT d.scope, 0::smallint FROM unnest(drop_txs, drop_scopes) AS d (tx, scope) WHERE NOT d.tx = ANY (lost_txs)
    ) w (scope, tag);
    ok := announce(seed, coalesce(told_scopes, '{}'), told_tags);
  END IF;
END
$$;

-- The commonest commit of all: one append, nothing read. What commit_batch would do, without its queries over arrays.
CREATE FUNCTION commit_append(
  given_ms bigint, of_scope bytea, of_tag smallint, given_time bigint, body_hash bytea, body bytea,
  of_dedupe bytea, of_dedupe_tail bytea, of_memo bytea, feed_scope bytea, feed_tag smallint,
  OUT version bigint, OUT at_ms bigint,
  OUT sequences bigint, OUT hashes bytea, OUT times bigint, OUT duplicates boolean, OUT memos bytea
)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
#variable_conflict use_variable
DECLARE
  seed bigint;
  tenant bytea;
  is_known boolean;
  ok boolean;
  now_at bigint[];
  scopes bytea[];
  -- The log and its head.
  id bigint;
  len bigint;
  prev bytea;
  last bigint;
  feed bigint;
BEGIN
  SELECT s.seed, a.tenant, a.role_name IS NOT NULL INTO seed, tenant, is_known
  FROM settings s LEFT JOIN access a ON a.role_name = session_user;
  scopes := CASE WHEN feed_scope <> of_scope THEN ARRAY[of_scope, feed_scope] ELSE ARRAY[of_scope] END;
  ok := (is_known AND tenant IS NULL) OR check_scopes(scopes);
  ok := lock_scopes(seed, scopes, array_fill(true, ARRAY[cardinality(scopes)]));
  now_at := tick(seed, given_ms);
  version := now_at[1];
  at_ms := now_at[2];
  SELECT t.tree_id, t.length, coalesce(t.hash, zero_hash()), t.last_time, d.sequence, d.hash, d.time, d.memo
  INTO id, len, prev, last, sequences, hashes, times, memos
  FROM trees t
  LEFT JOIN LATERAL (
    SELECT e.sequence, e.hash, e.time, e.memo FROM events e
    WHERE e.tree_id = t.tree_id AND e.dedupe = of_dedupe AND e.dedupe_tail = of_dedupe_tail LIMIT 1
  ) d ON true
  WHERE t.scope = of_scope AND t.tag = of_tag LIMIT 1;
  IF sequences IS NOT NULL THEN
    duplicates := true;
    RETURN;
  ELSIF id IS NULL THEN
    id := tree_named(of_scope, of_tag);
    len := 0;
    prev := zero_hash();
    last := 0;
  END IF;
  sequences := len;
  times := coalesce(given_time, greatest(at_ms, last));
  hashes := sha256('annals:link:1\000'::bytea || prev || int8send(len) || int8send(times) || body_hash);
  UPDATE trees t SET length = len + 1, hash = hashes, last_time = times, version = version, committed_at = at_ms
  WHERE t.tree_id = id;
  duplicates := false;
  memos := of_memo;
  IF feed_scope IS NOT NULL THEN
    feed := tree_named(feed_scope, feed_tag);
  END IF;
  INSERT INTO events (
    tree_id, sequence, version, time, committed_at, prev_hash, hash, body,
    dedupe, dedupe_tail, dedupe_tail_id, memo, feed_id, feed_count
  ) VALUES (
    id, sequences, version, times, at_ms, prev, hashes, body, of_dedupe, of_dedupe_tail,
    CASE WHEN of_dedupe_tail = '' THEN ''::bytea ELSE sha256(of_dedupe_tail) END, of_memo,
    feed, CASE WHEN feed IS NOT NULL THEN 0 END
  );
  IF has_listener(tenant_of(of_scope), seed) OR has_listener(tenant_of(feed_scope), seed) THEN
    ok := CASE
      WHEN feed_scope IS NULL THEN announce(seed, scopes, ARRAY[of_tag])
      ELSE announce(seed, ARRAY[of_scope, feed_scope], ARRAY[of_tag, feed_tag])
    END;
  END IF;
END
$$;
