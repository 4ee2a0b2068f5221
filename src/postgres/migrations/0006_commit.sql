-- Writing: one call for a batch of commits.

-- Operations take effect step by step; within a step those on one tree in their order. A drop begins a step.
CREATE FUNCTION commit_batch(
  given_ms bigint, steps integer,
  lock_list bytea[], lock_exclusive boolean[],
  tree_scopes bytea[], tree_tags smallint[], tree_kinds smallint[],
  -- Which transaction relies on which point.
  read_txs integer[], read_points integer[], point_trees integer[], point_kinds smallint[], point_keys bytea[], point_tails bytea[],
  point_sequences bigint[], point_versions bigint[],
  range_txs integer[], range_trees integer[], range_from bytea[], range_from_tails bytea[],
  range_to bytea[], range_to_tails bytea[], range_from_sequences bigint[], range_to_sequences bigint[],
  range_from_counts integer[], range_to_counts integer[],
  range_backwards boolean[], range_limits bigint[], range_digests bytea[],
  drop_txs integer[], drop_steps integer[], drop_scopes bytea[],
  put_txs integer[], put_steps integer[], put_trees integer[], put_keys bytea[], put_tails bytea[],
  put_values bytea[], put_expiries bigint[], put_times bigint[],
  append_txs integer[], append_steps integer[], append_trees integer[], append_times bigint[],
  append_body_hashes bytea[], append_bodies bytea[], append_dedupes bytea[], append_dedupe_tails bytea[],
  append_memos bytea[], append_twins integer[], append_feeds integer[], append_counts integer[],
  -- One step, no key twice in it, and it is probable that none of the keys is known.
  are_new boolean, feed_trees integer[],
  -- The logs, and which append is the first of each.
  log_trees integer[], log_firsts integer[],
  written_scopes bytea[], written_tags smallint[], written_tenants bytea[],
  -- The latest time that an append or a put brings along.
  not_before bigint, turn bigint,
  OUT version bigint, OUT at_ms bigint,
  OUT lost_txs integer[], OUT lost_points integer[], OUT lost_ranges integer[],
  OUT sequences bigint[], OUT hashes bytea[], OUT times bigint[], OUT duplicates boolean[],
  -- Of duplicates; the others have what they brought.
  OUT memos bytea[],
  -- Instead of the lists: place, sequence, time and hash of each append that is in here.
  OUT packed bytea
)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
#variable_conflict use_variable
DECLARE
  seed bigint;
  tenant bytea;
  is_known boolean;
  ok boolean;
  now_at bigint[];
  -- What has expired by it, was not read. Stamps are `at_ms`, which never goes back.
  clock_at bigint;
  base bigint;
  wrong integer[];
  told_scopes bytea[];
  told_tags smallint[];
BEGIN
  ok := in_turn(turn);
  SELECT s.seed, a.tenant, a.role_name IS NOT NULL INTO seed, tenant, is_known
  FROM settings s LEFT JOIN access a ON a.role_name = session_user;
  -- Whatever is named: who calls this by himself may have other scopes locked than he writes to.
  ok := (is_known AND tenant IS NULL)
    OR check_scopes(lock_list || tree_scopes || drop_scopes || written_scopes || written_tenants);
  ok := lock_scopes(lock_list, lock_exclusive);
  -- Only now: versions and times are in the order in which others see what is committed.
  -- The clock is everybody's: who reaches one tenant can't set it.
  now_at := tick(
    CASE WHEN tenant IS NULL THEN given_ms END,
    CASE WHEN tenant IS NULL THEN not_before ELSE least(not_before, ahead_ms()) END
  );
  base := now_at[1];
  version := base;
  at_ms := now_at[2];
  clock_at := now_at[3];

  IF cardinality(point_trees) > 0 THEN
    wrong := wrong_points(
      clock_at, tree_scopes, tree_tags, point_trees, point_kinds, point_keys, point_tails, point_sequences, point_versions
    );
  END IF;
  IF wrong IS NOT NULL THEN
    FOR i IN 1 .. cardinality(read_txs) LOOP
      IF read_points[i] = ANY (wrong) AND (lost_txs IS NULL OR NOT read_txs[i] = ANY (lost_txs)) THEN
        lost_txs := lost_txs || read_txs[i];
        lost_points := lost_points || read_points[i];
        lost_ranges := lost_ranges || NULL::integer;
      END IF;
    END LOOP;
  END IF;

  FOR i IN 1 .. cardinality(range_txs) LOOP
    CONTINUE WHEN range_txs[i] = ANY (lost_txs);
    IF range_digests[i] <> (
      SELECT sha256(coalesce(string_agg(int8send(f.version) || int4send(length(f.key)) || f.key, ''::bytea), ''))
      FROM read_range(
        clock_at, false, tree_scopes[range_trees[i]], tree_tags[range_trees[i]], tree_kinds[range_trees[i]],
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

    ok := cardinality(put_txs) > 0 AND put_entries(
      step, base, at_ms, lost_txs, tree_scopes, tree_tags,
      put_txs, put_steps, put_trees, put_keys, put_tails, put_values, put_expiries, put_times
    );
    IF cardinality(append_txs) > 0 THEN
      SELECT a.sequences, a.hashes, a.times, a.duplicates, a.memos, a.packed
      INTO sequences, hashes, times, duplicates, memos, packed
      FROM append_events(
        step, are_new, base, at_ms, lost_txs, tree_scopes, tree_tags,
        append_txs, append_steps, append_trees, append_times, append_body_hashes, append_bodies,
        append_dedupes, append_dedupe_tails, append_memos, append_twins, append_feeds, append_counts,
        feed_trees, log_trees, log_firsts, sequences, hashes, times, duplicates, memos
      ) a;
    END IF;
  END LOOP;

  IF NOT EXISTS (
    SELECT FROM unnest(written_tenants) w (tenant) WHERE EXISTS (SELECT FROM listeners l WHERE l.tenant = w.tenant)
  ) THEN
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

-- The commonest commit of all: one append, by somebody who has looked at nothing but entries of the same scope. What
-- commit_batch would do, in three statements: what is prepared for each of them costs more than what they do.
-- Answers with bytes, as one value is cheaper than a row: lost point, version, time of the commit, sequence, time, whether it
-- is a duplicate (8 bytes each), hash (32), memo.
CREATE FUNCTION commit_append(
  given_ms bigint, not_before bigint, of_scope bytea, of_tag smallint, given_time bigint, body_hash bytea, body bytea,
  of_dedupe bytea, of_dedupe_tail bytea, of_memo bytea, feed_scope bytea, feed_tag smallint,
  point_tags smallint[], point_keys bytea[], point_tails bytea[], point_versions bigint[], turn bigint
) RETURNS bytea
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
#variable_conflict use_variable
DECLARE
  seed bigint;
  is_bound boolean;
  is_locked boolean;
  now_at bigint[];
  version bigint;
  at_ms bigint;
  clock_at bigint;
  is_heard boolean;
  lost bigint := 0;
  -- The log and its head, or what it has under the key.
  id bigint;
  sequence bigint;
  prev bytea;
  stamp bigint;
  hash bytea;
  memo bytea;
  is_known boolean;
  feed bigint;
BEGIN
  is_locked := in_turn(turn);
  -- Access, then locks, as in `lock_scopes`. The CASE says what comes first.
  LOOP
    SELECT k.seed, k.is_bound,
      CASE WHEN k.is_allowed OR check_scopes(ARRAY[of_scope, coalesce(feed_scope, of_scope)]) THEN
        CASE WHEN k.feed_tenant <> k.tenant THEN lock_scopes(ARRAY[of_scope, feed_scope], ARRAY[true, true])
        ELSE (
          SELECT count(*) FROM (
            SELECT FROM locks l WHERE l.tenant = k.tenant AND l.slot IN (k.slot, k.feed_slot) ORDER BY l.slot FOR UPDATE
          ) locked
        ) > 0 END
      END
    INTO seed, is_bound, is_locked
    FROM (
      SELECT s.seed, a.role_name IS NOT NULL AND a.tenant IS NULL AS is_allowed, a.tenant IS NOT NULL AS is_bound,
        tenant_of(of_scope) AS tenant, tenant_of(feed_scope) AS feed_tenant,
        slot_of(of_scope) AS slot, slot_of(feed_scope) AS feed_slot
      FROM settings s LEFT JOIN access a ON a.role_name = session_user
      OFFSET 0
    ) k;
    EXIT WHEN is_locked;
    is_locked := make_locks(ARRAY[tenant_of(of_scope)]);
  END LOOP;
  now_at := tick(
    CASE WHEN NOT is_bound THEN given_ms END,
    CASE WHEN is_bound THEN least(given_time, ahead_ms()) ELSE greatest(given_time, not_before) END
  );
  version := now_at[1];
  at_ms := now_at[2];
  clock_at := now_at[3];

  IF cardinality(point_tags) > 0 THEN
    -- With the points in the same statement, as to begin one costs more than to look them up.
    SELECT w.i, t.tree_id, coalesce(d.sequence, t.length), coalesce(t.hash, zero_hash()),
      coalesce(d.time, given_time, greatest(at_ms, t.last_time)), d.hash, d.memo, d.sequence IS NOT NULL, f.tree_id
    INTO lost, id, sequence, prev, stamp, hash, memo, is_known, feed
    FROM (
      SELECT min(p.i) AS i
      FROM unnest(point_tags, point_keys, point_tails, point_versions) WITH ORDINALITY AS p (tag, key, tail, version, i)
      LEFT JOIN LATERAL (
        SELECT t.tree_id FROM trees t WHERE t.scope = of_scope AND t.tag = p.tag LIMIT 1
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
      SELECT t.tree_id, t.length, t.hash, t.last_time FROM trees t WHERE t.scope = of_scope AND t.tag = of_tag LIMIT 1
    ) t ON true
    LEFT JOIN LATERAL (
      SELECT e.sequence, e.hash, e.time, e.memo FROM events e
      WHERE e.tree_id = t.tree_id AND e.dedupe = of_dedupe AND e.dedupe_tail = of_dedupe_tail LIMIT 1
    ) d ON true
    LEFT JOIN LATERAL (
      SELECT l.tree_id FROM trees l WHERE l.scope = feed_scope AND l.tag = feed_tag LIMIT 1
    ) f ON true;
    IF lost IS NOT NULL THEN
      RETURN int8send(lost);
    END IF;
  ELSE
    SELECT t.tree_id, coalesce(d.sequence, t.length), coalesce(t.hash, zero_hash()),
      coalesce(d.time, given_time, greatest(at_ms, t.last_time)), d.hash, d.memo, d.sequence IS NOT NULL, f.tree_id
    INTO id, sequence, prev, stamp, hash, memo, is_known, feed
    FROM trees t
    LEFT JOIN LATERAL (
      SELECT e.sequence, e.hash, e.time, e.memo FROM events e
      WHERE e.tree_id = t.tree_id AND e.dedupe = of_dedupe AND e.dedupe_tail = of_dedupe_tail LIMIT 1
    ) d ON true
    LEFT JOIN LATERAL (
      SELECT l.tree_id FROM trees l WHERE l.scope = feed_scope AND l.tag = feed_tag LIMIT 1
    ) f ON true
    WHERE t.scope = of_scope AND t.tag = of_tag LIMIT 1;
  END IF;
  IF is_known THEN
    RETURN int8send(0) || int8send(version) || int8send(at_ms) || int8send(sequence) || int8send(stamp) || int8send(1)
      || hash || memo;
  ELSIF id IS NULL THEN
    id := tree_named(of_scope, of_tag);
    sequence := 0;
    prev := zero_hash();
    stamp := coalesce(given_time, at_ms);
  END IF;
  IF feed_scope IS NOT NULL AND feed IS NULL THEN
    feed := tree_named(feed_scope, feed_tag);
  END IF;
  UPDATE trees t
  SET length = sequence + 1, last_time = stamp, version = version, committed_at = at_ms,
    hash = sha256('annals:link:1\000'::bytea || prev || int8send(sequence) || int8send(stamp) || body_hash)
  WHERE t.tree_id = id RETURNING t.hash INTO hash;
  INSERT INTO events (
    tree_id, sequence, version, time, committed_at, prev_hash, hash, body,
    dedupe, dedupe_tail, dedupe_tail_id, memo, feed_id, feed_count
  ) VALUES (
    id, sequence, version, stamp, at_ms, prev, hash, body, of_dedupe, of_dedupe_tail,
    CASE WHEN of_dedupe_tail = '' THEN ''::bytea ELSE sha256(of_dedupe_tail) END, of_memo,
    feed, CASE WHEN feed IS NOT NULL THEN 0 END
  ) RETURNING EXISTS (
    SELECT FROM listeners l WHERE l.tenant IN (tenant_of(of_scope), tenant_of(feed_scope))
  ) INTO is_heard;
  IF is_heard AND feed_scope IS NULL THEN
    PERFORM announce(seed, ARRAY[of_scope], ARRAY[of_tag]);
  ELSIF is_heard THEN
    PERFORM announce(seed, ARRAY[of_scope, feed_scope], ARRAY[of_tag, feed_tag]);
  END IF;
  RETURN int8send(0) || int8send(version) || int8send(at_ms) || int8send(sequence) || int8send(stamp) || int8send(0)
    || hash || of_memo;
END
$$;
