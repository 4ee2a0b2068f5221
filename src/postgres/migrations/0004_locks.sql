-- Versions, times, locks and notifications.

-- The functions here mostly handle one or a few items, many times in one session. They return a value instead of void, because
-- PL/pgSQL evaluates `x := f()` without a query, and a query would cost more than the work itself.

-- Keeps the calls of a session in order. The client sends a call before it has the answer to the previous one. `turn` is the number of
-- calls that must have taken effect before this call. If a call was refused, the calls sent after it are refused too, so that none of
-- them overtakes the one that is sent again. A NULL turn means that the order does not matter.
CREATE FUNCTION in_turn(turn bigint) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  IF turn IS NULL THEN
    RETURN true;
  ELSIF coalesce(nullif(current_setting('annals.turn', true), ''), '0') <> turn::text THEN
    RAISE EXCEPTION 'a call before this one was refused' USING ERRCODE = 'AN003';
  END IF;
  RETURN set_config('annals.turn', (turn + 1)::text, false) IS NOT NULL;
END
$$;

-- Returns the next version, a commit time and the clock. The commit time is not before any other commit time nor before `not_before`.
-- Version and time are taken under one lock, so times never go back in the order of versions. All tenants share this lock, so it must
-- end before the transaction does: the block below is a subtransaction that always fails, which releases the lock but keeps the
-- numbers of the sequences. The lock is a table lock because only the owner can take it; anybody can take an advisory lock.
CREATE FUNCTION tick(given bigint, not_before bigint) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
  latest bigint;
  clock_at bigint;
  at_ms bigint;
  version bigint;
BEGIN
  BEGIN
    LOCK TABLE ticking IN EXCLUSIVE MODE;
    latest := coalesce(pg_sequence_last_value('clock'), 0);
    clock_at := coalesce(given, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint);
    at_ms := greatest(clock_at, latest, not_before);
    IF at_ms > latest THEN
      latest := setval('clock', at_ms);
    END IF;
    version := nextval('versions');
    RAISE SQLSTATE 'AN000';
  EXCEPTION WHEN SQLSTATE 'AN000' THEN
    NULL;
  END;
  RETURN ARRAY[version, at_ms, clock_at];
END
$$;

-- The latest event time that a role bound to a tenant may bring along: one minute ahead. Event times move the clock of all tenants.
CREATE FUNCTION ahead_ms() RETURNS bigint LANGUAGE sql VOLATILE AS $$
  SELECT clock_ms(NULL) + 60000
$$;

-- The previous hash of a log's first event.
CREATE FUNCTION zero_hash() RETURNS bytea LANGUAGE sql IMMUTABLE AS $$
  SELECT '\x0000000000000000000000000000000000000000000000000000000000000000'::bytea
$$;

-- The name of a tree in notifications. Tag 0 stands for the whole scope.
CREATE FUNCTION topic_of(of_scope bytea, of_tag integer, seed bigint) RETURNS text LANGUAGE sql IMMUTABLE AS $$
  SELECT to_hex(hashtextextended(encode(of_scope, 'hex'), seed + 16 + of_tag))
$$;

-- Each tenant has its own channel, so that no tenant learns about the activity of another.
CREATE FUNCTION channel_of(tenant bytea, seed bigint) RETURNS text LANGUAGE sql IMMUTABLE AS $$
  SELECT 'annals_' || to_hex(hashtextextended(encode(tenant, 'hex'), seed + 1))
$$;

-- The first part of a scope, including its colon.
CREATE FUNCTION tenant_of(scope bytea) RETURNS bytea LANGUAGE sql IMMUTABLE AS $$
  SELECT substring(scope FROM 1 FOR position(':'::bytea IN scope))
$$;

-- The number of a scope's lock among the 64 locks of its tenant, from 0.
CREATE FUNCTION slot_of(scope bytea) RETURNS smallint LANGUAGE sql IMMUTABLE AS $$
  SELECT (hashtextextended(encode(scope, 'hex'), 0) & 63)::smallint
$$;

-- Creates all locks of the tenants. A call does this before it takes its first lock; otherwise it could hold locks out of order.
CREATE FUNCTION make_locks(of_tenants bytea[]) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO locks (tenant, slot)
  SELECT t, s FROM unnest(of_tenants) t CROSS JOIN generate_series(0, 63) s ORDER BY t, s
  ON CONFLICT DO NOTHING;
  RETURN true;
END
$$;

-- Locks the scopes of the trees until the transaction ends: exclusively if they are written, otherwise shared. The locks are taken in
-- the order of tenants and slots, so two calls never deadlock. Returns the tenants.
CREATE FUNCTION lock_scopes(trees batch_tree[]) RETURNS bytea[] LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
  tenants bytea[];
  missing bytea[];
  ok boolean;
BEGIN
  SELECT array_agg(d.tenant),
    array_agg(d.tenant) FILTER (WHERE NOT EXISTS (SELECT FROM locks l WHERE l.tenant = d.tenant AND l.slot = 0))
  INTO tenants, missing
  FROM (SELECT DISTINCT tenant_of(t.scope) AS tenant FROM unnest(trees) t) d;
  ok := missing IS NULL OR make_locks(missing);
  SELECT count(*) = count(
    CASE WHEN w.is_written THEN (SELECT 1 FROM locks l WHERE l.tenant = w.tenant AND l.slot = w.slot FOR UPDATE)
    ELSE (SELECT 1 FROM locks l WHERE l.tenant = w.tenant AND l.slot = w.slot FOR SHARE) END
  ) INTO ok
  FROM (
    SELECT tenant_of(s.scope) AS tenant, slot_of(s.scope) AS slot, bool_or(s.is_written) AS is_written
    FROM (SELECT t.scope, bool_or(t.is_written) AS is_written FROM unnest(trees) t GROUP BY 1) s
    GROUP BY 1, 2 ORDER BY 1, 2
  ) w;
  IF NOT ok THEN
    RAISE EXCEPTION 'the locks of a tenant are newer than this transaction: commit in READ COMMITTED' USING ERRCODE = 'AN002';
  END IF;
  RETURN tenants;
END
$$;

-- Whether a session listens for changes of one of the tenants. NOTIFY takes a lock of the whole server until the commit is on disk, so
-- writers notify only if there is a listener. A writer that finds none holds its scopes until it has committed, and a new listener
-- waits for these scopes (`wait_for_writers`). So neither misses the other.
CREATE FUNCTION have_listener(tenants bytea[]) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  RETURN EXISTS (
    SELECT FROM unnest(tenants) t (tenant)
    CROSS JOIN LATERAL (SELECT FROM listeners l WHERE l.tenant = t.tenant LIMIT 1) l
  );
END
$$;

-- Notifies the listeners of the tenants of these trees, in few messages. The trees must be ordered by scope. The server has one queue of
-- notifications, any role can fill it, and a commit that finds it full fails. So above half of the queue commits are only counted,
-- and listeners look at the count every few seconds.
CREATE FUNCTION announce(seed bigint, changed batch_tree[]) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  tree batch_tree;
  tenant bytea;
  topics text;
  ok boolean;
BEGIN
  IF pg_notification_queue_usage() > 0.5 THEN
    RETURN nextval('untold') IS NULL;
  END IF;
  FOREACH tree IN ARRAY changed LOOP
    IF tenant IS NULL OR tenant_of(tree.scope) <> tenant OR length(topics) > 7900 THEN
      ok := topics IS NOT NULL AND pg_notify(channel_of(tenant, seed), topics) IS NOT NULL;
      tenant := tenant_of(tree.scope);
      topics := CASE WHEN have_listener(ARRAY[tenant]) THEN topic_of(tree.scope, tree.tag, seed) END;
    ELSIF topics IS NOT NULL THEN
      topics := topics || ',' || topic_of(tree.scope, tree.tag, seed);
    END IF;
  END LOOP;
  RETURN topics IS NOT NULL AND pg_notify(channel_of(tenant, seed), topics) IS NOT NULL;
END
$$;
