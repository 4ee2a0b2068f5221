-- What writing is made of: versions and times, locks, and telling who listens.

-- What is called here runs in one session all the time, and mostly with one or a few items. So helpers return a value
-- and are assigned from, which PL/pgSQL does without a query; a query costs more than what it would do.

-- The next versions, and a time that is not before any other, nor before what is to be committed. A session lock that ends with the call, so
-- that nobody waits for a whole commit here; who fails in between loses his connection, and so the lock.
CREATE FUNCTION tick(seed bigint, given bigint, not_before bigint) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
  latest bigint;
  at_ms bigint;
  version bigint;
BEGIN
  IF pg_advisory_lock(seed) IS NULL THEN
    RAISE 'no lock';
  END IF;
  latest := coalesce(pg_sequence_last_value('clock'), 0);
  at_ms := greatest(coalesce(given, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint), latest, not_before);
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

-- How far ahead an event may be that comes from another machine, and move the clock of this one.
CREATE FUNCTION ahead_ms() RETURNS bigint LANGUAGE sql VOLATILE AS $$
  SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint + 60000
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
