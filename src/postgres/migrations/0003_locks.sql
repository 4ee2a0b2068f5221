-- What writing is made of: versions and times, locks, and telling who listens.

-- What is called here runs in one session all the time, and mostly with one or a few items. So helpers return a value
-- and are assigned from, which PL/pgSQL does without a query; a query costs more than what it would do.

-- A session sends a call before the one before it is answered. `turn` says how many calls must have taken effect before: if one was
-- refused, those behind it are refused as well, so that nothing overtakes what is sent again. Without it the order does not matter.
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

-- The next versions, a time that is not before any other, nor before what is to be committed, and the clock. They are taken under one
-- lock, so that in the order of versions time never goes back. Nobody may wait here for a whole commit, so the lock has to end
-- before the transaction does. The block below is a subtransaction that always fails: that releases its lock, and the numbers of
-- sequences stay taken. Only the owner may lock the table; an advisory lock could be taken by anybody who can send SQL.
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

-- How far ahead an event may be that comes from another machine, and move the clock of this one.
CREATE FUNCTION ahead_ms() RETURNS bigint LANGUAGE sql VOLATILE AS $$
  SELECT clock_ms(NULL) + 60000
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

-- Which of its tenant's locks a scope has. There are 64, numbered from 0.
CREATE FUNCTION slot_of(scope bytea) RETURNS smallint LANGUAGE sql IMMUTABLE AS $$
  SELECT (hashtextextended(encode(scope, 'hex'), 0) & 63)::smallint
$$;

-- All locks of a tenant are made at once, and before the first is taken. A call that locked some and then had to make others would
-- hold locks out of order.
CREATE FUNCTION make_locks(of_tenants bytea[]) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO locks (tenant, slot)
  SELECT t, s FROM unnest(of_tenants) t CROSS JOIN generate_series(0, 63) s ORDER BY t, s
  ON CONFLICT DO NOTHING;
  RETURN true;
END
$$;

-- Scopes that are written are locked for everybody else, those that are read only for writers, until the transaction ends. In the
-- order of tenants and slots, so that two calls never wait for each other.
CREATE FUNCTION lock_scopes(scopes bytea[], exclusive boolean[]) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  ok boolean;
  missing bytea[];
BEGIN
  SELECT array_agg(d.tenant) INTO missing
  FROM (SELECT DISTINCT tenant_of(s) AS tenant FROM unnest(scopes) s) d
  WHERE NOT EXISTS (SELECT FROM locks l WHERE l.tenant = d.tenant AND l.slot = 0);
  ok := missing IS NULL OR make_locks(missing);
  SELECT count(*) = count(
    CASE WHEN w.x THEN (SELECT 1 FROM locks l WHERE l.tenant = w.tenant AND l.slot = w.slot FOR UPDATE)
    ELSE (SELECT 1 FROM locks l WHERE l.tenant = w.tenant AND l.slot = w.slot FOR SHARE) END
  ) INTO ok
  FROM (
    SELECT tenant_of(u.s) AS tenant, slot_of(u.s) AS slot, bool_or(u.x) AS x
    FROM unnest(scopes, exclusive) AS u (s, x) GROUP BY 1, 2 ORDER BY 1, 2
  ) w;
  IF NOT ok THEN
    RAISE EXCEPTION 'the locks of a tenant are newer than this transaction: commit in READ COMMITTED' USING ERRCODE = 'AN002';
  END IF;
  RETURN ok;
END
$$;

-- Whether somebody listens: sending takes a lock of the whole server until the commit is on disk, so nobody sends where nobody
-- listens. A writer who finds no listener holds his scopes until he has committed; whoever begins to listen waits for them
-- (`wait_for_writers`), so that neither misses the other.
CREATE FUNCTION has_listener(of_tenant bytea) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  RETURN EXISTS (SELECT FROM listeners l WHERE l.tenant = of_tenant);
END
$$;

-- Tells who listens, in few messages. A dropped scope has tag 0. The queue of notifications is the whole server's, and a commit that finds
-- it full fails. Anybody can fill it. Before it is full nobody is told any more: such commits are counted, and listeners look at the
-- count now and then.
CREATE FUNCTION announce(seed bigint, scopes bytea[], tags smallint[]) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  tenant bytea;
  topics text;
  ok boolean;
BEGIN
  IF pg_notification_queue_usage() > 0.5 THEN
    RETURN nextval('untold') IS NULL;
  END IF;
  FOR i IN 1 .. cardinality(scopes) LOOP
    IF tenant IS NULL OR tenant_of(scopes[i]) <> tenant OR length(topics) > 7900 THEN
      ok := topics IS NOT NULL AND pg_notify(channel_of(tenant, seed), topics) IS NOT NULL;
      tenant := tenant_of(scopes[i]);
      topics := CASE WHEN has_listener(tenant) THEN topic_of(scopes[i], tags[i], seed) END;
    ELSIF topics IS NOT NULL THEN
      topics := topics || ',' || topic_of(scopes[i], tags[i], seed);
    END IF;
  END LOOP;
  RETURN topics IS NOT NULL AND pg_notify(channel_of(tenant, seed), topics) IS NOT NULL;
END
$$;
