-- What a commit appends to logs.

-- Mostly each log gets one entry, is there, and does not know the key: then all are linked in one statement. Says which of
-- the appends it has done, and what to answer them.
CREATE FUNCTION append_flat(
  base bigint, at_ms bigint, tree_scopes bytea[], tree_tags smallint[], feed_ids bigint[],
  append_txs integer[], append_trees integer[], append_times bigint[], append_body_hashes bytea[],
  append_bodies bytea[], append_dedupes bytea[], append_dedupe_tails bytea[], append_memos bytea[],
  append_feeds integer[], append_counts integer[],
  OUT places integer[], OUT sequences bigint[], OUT hashes bytea[], OUT times bigint[]
)
LANGUAGE plpgsql AS $$
#variable_conflict use_variable
BEGIN
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
  INTO places, sequences, hashes, times FROM found f;
END
$$;

-- The appends of one step, one after the other within each log. What is answered is filled in.
CREATE FUNCTION append_events(
  of_step integer, is_flat boolean, base bigint, at_ms bigint, lost_txs integer[],
  tree_scopes bytea[], tree_tags smallint[],
  append_txs integer[], append_steps integer[], append_trees integer[], append_times bigint[],
  append_body_hashes bytea[], append_bodies bytea[], append_dedupes bytea[], append_dedupe_tails bytea[],
  append_memos bytea[], append_twins integer[], append_feeds integer[], append_counts integer[],
  feed_trees integer[],
  INOUT sequences bigint[], INOUT hashes bytea[], INOUT times bigint[], INOUT duplicates boolean[],
  INOUT memos bytea[]
)
LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
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
  ids bigint[] := array_fill(NULL::bigint, ARRAY[cardinality(append_txs)]);
  prevs bytea[] := array_fill(NULL::bytea, ARRAY[cardinality(append_txs)]);
  -- For each log: its head after the step.
  head_trees integer[] := '{}';
  head_ids bigint[] := '{}';
  head_lengths bigint[] := '{}';
  head_hashes bytea[] := '{}';
  head_times bigint[] := '{}';
  head_versions bigint[] := '{}';
  -- By the feed's place among the trees.
  feed_ids bigint[] := array_fill(NULL::bigint, ARRAY[cardinality(tree_scopes)]);
  -- What was done in one statement.
  done integer[];
  done_sequences bigint[];
  done_hashes bytea[];
  done_times bigint[];
BEGIN
  IF sequences IS NULL THEN
    sequences := ids;
    hashes := prevs;
    times := array_fill(at_ms, ARRAY[cardinality(append_txs)]);
    duplicates := array_fill(false, ARRAY[cardinality(append_txs)]);
    memos := prevs;
  END IF;
  FOR i IN 1 .. cardinality(feed_trees) LOOP
    feed_ids[feed_trees[i]] := tree_named(tree_scopes[feed_trees[i]], tree_tags[feed_trees[i]]);
  END LOOP;
  IF is_flat AND lost_txs IS NULL THEN
    SELECT f.places, f.sequences, f.hashes, f.times INTO done, done_sequences, done_hashes, done_times
    FROM append_flat(
      base, at_ms, tree_scopes, tree_tags, feed_ids, append_txs, append_trees, append_times, append_body_hashes,
      append_bodies, append_dedupes, append_dedupe_tails, append_memos, append_feeds, append_counts
    ) f;
    IF cardinality(done) = cardinality(append_txs) THEN
      sequences := done_sequences;
      hashes := done_hashes;
      times := done_times;
      RETURN;
    END IF;
    FOR i IN 1 .. coalesce(cardinality(done), 0) LOOP
      sequences[done[i]] := done_sequences[i];
      hashes[done[i]] := done_hashes[i];
      times[done[i]] := done_times[i];
    END LOOP;
  END IF;
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
    WHERE a.step = of_step AND sequences[a.i] IS NULL AND (lost_txs IS NULL OR NOT a.tx = ANY (lost_txs))
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
  WHERE a.step = of_step AND a.id IS NOT NULL;
  -- Each is there already. An UPDATE would join, and a join that was planned on an empty table would stay as it is.
  INSERT INTO trees (tree_id, scope, tag, length, hash, last_time, version, committed_at)
  SELECT h.id, tree_scopes[h.tree], tree_tags[h.tree], h.length, h.hash, h.time, h.version, at_ms
  FROM unnest(head_ids, head_trees, head_lengths, head_hashes, head_times, head_versions)
    AS h (id, tree, length, hash, time, version)
  ON CONFLICT (tree_id) DO UPDATE
  SET length = excluded.length, hash = excluded.hash, last_time = excluded.last_time,
    version = excluded.version, committed_at = excluded.committed_at;
END
$$;
