-- Commits a batch of transactions in one call.

-- Validates the reads of all transactions first, then applies the transactions that have no conflict. This equals committing them one
-- by one, because the client puts no transaction into a batch that reads what an earlier one of the batch writes. Operations take effect
-- step by step, and within a step those on one tree in their order.
CREATE FUNCTION commit_batch(
  -- The clock of a test; NULL for the server's. No commit time is before `not_before`.
  given_ms bigint, not_before bigint,
  -- For `in_turn`.
  turn bigint,
  step_count integer,
  -- Whether the dedupe keys of all appends are probably new.
  are_new boolean,
  trees batch_tree[], points batch_point[], ranges batch_range[],
  drops batch_drop[], puts batch_put[], appends batch_append[]
) RETURNS batch_outcome
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
#variable_conflict use_variable
DECLARE
  seed bigint;
  tenant bytea;
  is_known boolean;
  ok boolean;
  tenants bytea[];
  ticked bigint[];
  base bigint;
  at_ms bigint;
  -- Entries that have expired by this clock are absent. It can go back, unlike `at_ms`.
  clock_at bigint;
  tree_ids bigint[];
  changed integer[];
  checked batch_range;
  conflicts batch_conflict[];
  -- The transactions in conflict.
  lost integer[];
  dropped batch_drop;
  step_puts batch_put[] := puts;
  step_appends batch_append[] := appends;
  appended batch_appended[];
BEGIN
  ok := in_turn(turn);
  SELECT s.seed, a.tenant, a.role_name IS NOT NULL INTO seed, tenant, is_known
  FROM settings s LEFT JOIN access a ON a.role_name = session_user;
  -- Everything in the batch names its scope by a tree, so this checks all of it, whoever has made up the call.
  ok := (is_known AND tenant IS NULL) OR check_scopes(ARRAY(SELECT t.scope FROM unnest(trees) t));
  tenants := lock_scopes(trees);
  -- Versions and times are taken only under the locks, so that they follow the order in which others see the commits.
  -- All tenants share the clock, so a role bound to a tenant cannot set it.
  ticked := tick(
    CASE WHEN tenant IS NULL THEN given_ms END,
    CASE WHEN tenant IS NULL THEN not_before ELSE least(not_before, ahead_ms()) END
  );
  base := ticked[1];
  at_ms := ticked[2];
  clock_at := ticked[3];
  tree_ids := tree_ids_of(trees);

  IF cardinality(points) > 0 THEN
    changed := changed_points(clock_at, trees, tree_ids, points);
  END IF;
  IF changed IS NOT NULL THEN
    SELECT array_agg((c.tx, c.point, NULL)::batch_conflict), array_agg(c.tx) INTO conflicts, lost
    FROM (
      SELECT r.tx, min(i.point) AS point
      FROM unnest(changed) i (point) CROSS JOIN LATERAL unnest(points[i.point].txs) r (tx) GROUP BY 1
    ) c;
  END IF;
  FOR i IN 1 .. cardinality(ranges) LOOP
    checked := ranges[i];
    CONTINUE WHEN checked.tx = ANY (lost);
    IF checked.digest <> (
      SELECT sha256(coalesce(string_agg(int8send(f.version) || int4send(length(f.key)) || f.key, ''::bytea), ''))
      FROM read_range(
        clock_at, false, trees[checked.tree].scope, trees[checked.tree].tag, trees[checked.tree].kind, checked.range
      ) f
    ) THEN
      conflicts := conflicts || (checked.tx, NULL, i)::batch_conflict;
      lost := lost || checked.tx;
    END IF;
  END LOOP;

  FOR step IN 1 .. step_count LOOP
    IF cardinality(drops) > 0 THEN
      FOREACH dropped IN ARRAY drops LOOP
        CONTINUE WHEN dropped.step <> step OR dropped.tx = ANY (lost);
        PERFORM drop_scope(trees[dropped.tree].scope, base + dropped.tx, at_ms);
        tree_ids := tree_ids_of(trees);
      END LOOP;
    END IF;
    IF step_count > 1 OR lost IS NOT NULL THEN
      step_puts := ARRAY(SELECT p FROM unnest(puts) p WHERE p.step = step AND p.tx = ANY (lost) IS NOT TRUE);
      step_appends := ARRAY(SELECT a FROM unnest(appends) a WHERE a.step = step AND a.tx = ANY (lost) IS NOT TRUE);
    END IF;
    ok := cardinality(step_puts) > 0 AND put_entries(base, at_ms, tree_ids, step_puts);
    IF cardinality(step_appends) > 0 THEN
      appended := appended || append_events(are_new, base, at_ms, tree_ids, step_appends);
    END IF;
  END LOOP;

  IF have_listener(tenants) THEN
    ok := announce(seed, ARRAY(
      SELECT trees[w.tree]
      FROM (
        SELECT a.tx, a.tree FROM unnest(appends) a
        UNION SELECT a.tx, a.feed FROM unnest(appends) a WHERE a.feed IS NOT NULL
        UNION SELECT p.tx, p.tree FROM unnest(puts) p
        UNION SELECT d.tx, d.tree FROM unnest(drops) d
      ) w
      WHERE w.tx = ANY (lost) IS NOT TRUE
      GROUP BY w.tree ORDER BY trees[w.tree].scope
    ));
  END IF;
  RETURN (base, at_ms, conflicts, appended)::batch_outcome;
END
$$;
