-- One-step updates over places and ranges. The steps run in the client, so one transaction holds the locks over two calls:
-- `hold_and_read` locks and reads, the client runs all waiting steps, and `commit_held` writes their operations.

CREATE TYPE tree_range AS (scope bytea, tag smallint, kind smallint, range key_range);

-- Proves that `hold_and_read` gave this version and this time to this transaction. Without it, a role that sends its own SQL could
-- write any version. The secret seed and the number of the transaction make it unforgeable.
CREATE FUNCTION held_token(seed bigint, base bigint, at_ms bigint) RETURNS bytea LANGUAGE plpgsql AS $$
BEGIN
  RETURN sha256(
    'annals:held:1\000'::bytea || int8send(seed) || int8send(pg_current_xact_id()::text::bigint) || int8send(base) || int8send(at_ms)
  );
END
$$;

-- Locks the scopes exclusively until the transaction ends, takes a version and a time, and reads the places and ranges. The first row has
-- the token (key), the version of transaction 0, the commit time and the clock (expires_at). The rows of places have `part` 0 and the
-- number of the place in `i`; those of the ranges have the number of the range in `part`. Both count from 1.
CREATE FUNCTION hold_and_read(
  -- As in `commit_batch`.
  given_ms bigint, not_before bigint,
  -- The server ends the session if the client does not go on within this time, because others wait for the locks.
  idle_ms integer,
  scopes bytea[], places place[], ranges tree_range[]
) RETURNS TABLE (
  part integer, i bigint, key bytea, value bytea, version bigint, committed_at bigint, expires_at bigint
)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  secret bigint;
  bound_to bytea;
  is_known boolean;
  ok boolean;
  ticked bigint[];
  asked tree_range;
BEGIN
  SELECT s.seed, a.tenant, a.role_name IS NOT NULL INTO secret, bound_to, is_known
  FROM settings s LEFT JOIN access a ON a.role_name = session_user;
  ok := (is_known AND bound_to IS NULL) OR check_scopes(
    scopes || ARRAY(SELECT p.scope FROM unnest(places) p) || ARRAY(SELECT r.scope FROM unnest(ranges) r)
  );
  ok := set_config('idle_in_transaction_session_timeout', idle_ms::text, true) IS NOT NULL;
  ok := lock_scopes(ARRAY(SELECT (s.scope, 0, 0, true, false)::batch_tree FROM unnest(scopes) s (scope))) IS NOT NULL;
  ticked := tick(
    CASE WHEN bound_to IS NULL THEN given_ms END,
    CASE WHEN bound_to IS NULL THEN not_before ELSE least(not_before, ahead_ms()) END
  );
  RETURN QUERY SELECT -1, 0::bigint, held_token(secret, ticked[1], ticked[2]), NULL::bytea, ticked[1], ticked[2], ticked[3];
  IF cardinality(places) > 0 THEN
    RETURN QUERY
      SELECT 0, p.i, NULL::bytea, p.value, p.version, p.committed_at, p.expires_at
      FROM read_points(ticked[3], true, places) p;
  END IF;
  FOR n IN 1 .. cardinality(ranges) LOOP
    asked := ranges[n];
    RETURN QUERY
      SELECT n, 0::bigint, r.key, r.value, r.version, r.committed_at, r.expires_at
      FROM read_range(ticked[3], true, asked.scope, asked.tag, asked.kind, asked.range) r;
  END LOOP;
END
$$;

-- Writes the puts and deletes of steps, with the version and the time of `hold_and_read`. Steps count from 0, and step n has the version
-- `base + n`. It takes the locks again, which costs little: a role that sends its own SQL may have released them by a savepoint.
CREATE FUNCTION commit_held(token bytea, base bigint, at_ms bigint, trees batch_tree[], puts batch_put[]) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
#variable_conflict use_variable
DECLARE
  seed bigint;
  bound_to bytea;
  is_known boolean;
  ok boolean;
  tenants bytea[];
BEGIN
  SELECT s.seed, a.tenant, a.role_name IS NOT NULL INTO seed, bound_to, is_known
  FROM settings s LEFT JOIN access a ON a.role_name = session_user;
  IF token IS DISTINCT FROM held_token(seed, base, at_ms) THEN
    RAISE EXCEPTION 'commit_held must follow hold_and_read in the same transaction' USING ERRCODE = 'AN002';
  END IF;
  ok := (is_known AND bound_to IS NULL) OR check_scopes(ARRAY(SELECT t.scope FROM unnest(trees) t));
  tenants := lock_scopes(trees);
  ok := put_entries(base, at_ms, tree_ids_of(trees), puts);
  IF have_listener(tenants) THEN
    ok := announce(seed, ARRAY(
      SELECT trees[w.tree] FROM (SELECT DISTINCT p.tree FROM unnest(puts) p) w ORDER BY trees[w.tree].scope
    ));
  END IF;
  RETURN true;
END
$$;
