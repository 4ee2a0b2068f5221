-- What a commit appends to logs.

-- Mostly every log is there and no key is known: then all are linked, log by log, in one statement. Nobody looks for keys:
-- the index refuses one that is there, and then nothing was done. Says which of the appends it has done, and what to
-- answer them: place (4 bytes), sequence, time (8 each), hash (32).
CREATE FUNCTION append_new(
  base bigint, at_ms bigint, tree_scopes bytea[], tree_tags smallint[], feed_ids bigint[],
  append_txs integer[], append_trees integer[], append_times bigint[], append_body_hashes bytea[],
  append_bodies bytea[], append_dedupes bytea[], append_dedupe_tails bytea[], append_memos bytea[],
  append_feeds integer[], append_counts integer[], log_trees integer[], log_firsts integer[],
  OUT done integer[], OUT packed bytea
)
LANGUAGE plpgsql AS $$
#variable_conflict use_variable
BEGIN
  WITH RECURSIVE chain AS (
    SELECT l.first AS i, l.tree, t.tree_id, t.length AS sequence, t.prev, s.stamp,
      sha256('annals:link:1\000'::bytea || t.prev || int8send(t.length) || int8send(s.stamp)
        || append_body_hashes[l.first]) AS link
    FROM unnest(log_trees, log_firsts) AS l (tree, first)
    CROSS JOIN LATERAL (
      SELECT t.tree_id, t.length, coalesce(t.hash, zero_hash()) AS prev, t.last_time FROM trees t
      WHERE t.scope = tree_scopes[l.tree] AND t.tag = tree_tags[l.tree] LIMIT 1
    ) t
    CROSS JOIN LATERAL (SELECT coalesce(append_times[l.first], greatest(at_ms, t.last_time)) AS stamp OFFSET 0) s
    UNION ALL
    SELECT n.i, c.tree, c.tree_id, n.sequence, c.link, n.stamp,
      sha256('annals:link:1\000'::bytea || c.link || int8send(n.sequence) || int8send(n.stamp)
        || append_body_hashes[n.i])
    FROM chain c
    CROSS JOIN LATERAL (
      SELECT c.i + 1 AS i, c.sequence + 1 AS sequence,
        coalesce(append_times[c.i + 1], greatest(at_ms, c.stamp)) AS stamp OFFSET 0
    ) n
    -- They come log by log.
    WHERE append_trees[c.i + 1] = c.tree
  ), inserted AS (
    INSERT INTO events (
      tree_id, sequence, version, time, committed_at, prev_hash, hash, body,
      dedupe, dedupe_tail, dedupe_tail_id, memo, feed_id, feed_count
    )
    SELECT c.tree_id, c.sequence, base + append_txs[c.i], c.stamp, at_ms, c.prev, c.link, append_bodies[c.i],
      append_dedupes[c.i], append_dedupe_tails[c.i],
      CASE WHEN append_dedupe_tails[c.i] = '' THEN ''::bytea ELSE sha256(append_dedupe_tails[c.i]) END,
      append_memos[c.i], feed_ids[append_feeds[c.i]], CASE WHEN append_feeds[c.i] IS NOT NULL THEN append_counts[c.i] END
    FROM chain c
  ), moved AS (
    -- Each is there already. An UPDATE would join, and a join that was planned on an empty table would stay as it is.
    INSERT INTO trees (tree_id, scope, tag, length, hash, last_time, version, committed_at)
    SELECT c.tree_id, tree_scopes[c.tree], tree_tags[c.tree], c.sequence + 1, c.link, c.stamp,
      base + append_txs[c.i], at_ms
    FROM chain c WHERE append_trees[c.i + 1] IS DISTINCT FROM c.tree
    ON CONFLICT (tree_id) DO UPDATE
    SET length = excluded.length, hash = excluded.hash, last_time = excluded.last_time,
      version = excluded.version, committed_at = excluded.committed_at
  )
  SELECT array_agg(c.i), string_agg(int4send(c.i) || int8send(c.sequence) || int8send(c.stamp) || c.link, ''::bytea)
  INTO done, packed FROM chain c;
EXCEPTION WHEN unique_violation THEN
  done := NULL;
  packed := NULL;
END
$$;

-- The appends of one step, one after the other within each log. What is answered is filled in.
CREATE FUNCTION append_events(
  of_step integer, are_new boolean, base bigint, at_ms bigint, lost_txs integer[],
  tree_scopes bytea[], tree_tags smallint[],
  append_txs integer[], append_steps integer[], append_trees integer[], append_times bigint[],
  append_body_hashes bytea[], append_bodies bytea[], append_dedupes bytea[], append_dedupe_tails bytea[],
  append_memos bytea[], append_twins integer[], append_feeds integer[], append_counts integer[],
  feed_trees integer[], log_trees integer[], log_firsts integer[],
  INOUT sequences bigint[], INOUT hashes bytea[], INOUT times bigint[], INOUT duplicates boolean[],
  INOUT memos bytea[], OUT packed bytea
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
  ids bigint[];
  prevs bytea[];
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
BEGIN
  FOR i IN 1 .. cardinality(feed_trees) LOOP
    feed_ids[feed_trees[i]] := tree_named(tree_scopes[feed_trees[i]], tree_tags[feed_trees[i]]);
  END LOOP;
  IF are_new AND lost_txs IS NULL THEN
    SELECT n.done, n.packed INTO done, packed
    FROM append_new(
      base, at_ms, tree_scopes, tree_tags, feed_ids, append_txs, append_trees, append_times, append_body_hashes,
      append_bodies, append_dedupes, append_dedupe_tails, append_memos, append_feeds, append_counts,
      log_trees, log_firsts
    ) n;
    IF cardinality(done) = cardinality(append_txs) THEN
      RETURN;
    END IF;
  END IF;
  ids := array_fill(NULL::bigint, ARRAY[cardinality(append_txs)]);
  prevs := array_fill(NULL::bytea, ARRAY[cardinality(append_txs)]);
  IF sequences IS NULL THEN
    sequences := ids;
    hashes := prevs;
    times := array_fill(at_ms, ARRAY[cardinality(append_txs)]);
    duplicates := array_fill(false, ARRAY[cardinality(append_txs)]);
    memos := prevs;
  END IF;
  FOR i IN 1 .. coalesce(cardinality(done), 0) LOOP
    sequences[done[i]] := 0;
  END LOOP;
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
