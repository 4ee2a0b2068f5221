-- Who may do what. Writing goes through the functions of 0006, which run as the owner and check; reading is what
-- row-level security lets through. So SQL by an application's role can't do more than Annals can.

-- Which tenant a role reaches. A role, and not a setting of the session: who can send SQL could change that.
CREATE TABLE access (
  role_name name PRIMARY KEY,
  -- As scopes begin, with the colon; NULL: all tenants.
  tenant bytea
);
INSERT INTO access (role_name) VALUES (session_user);

-- What all scopes that are reached begin with: nothing if it is all of them. NULL if it is none.
CREATE FUNCTION reached_tenant() RETURNS bytea
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
  found_tenant bytea;
BEGIN
  SELECT coalesce(a.tenant, '') INTO found_tenant FROM access a WHERE a.role_name = session_user;
  IF FOUND THEN
    RETURN found_tenant;
  END IF;
  RETURN CASE WHEN pg_has_role(session_user, current_user, 'MEMBER') THEN ''::bytea END;
END
$$;

CREATE FUNCTION check_scopes(scopes bytea[]) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  tenant bytea := reached_tenant();
  scope bytea;
BEGIN
  IF tenant = '' THEN
    RETURN true;
  ELSIF tenant IS NULL THEN
    RAISE EXCEPTION 'role % has no access to this schema: grant_access(role, tenant) gives it', session_user
      USING ERRCODE = 'AN002';
  END IF;
  FOREACH scope IN ARRAY scopes LOOP
    IF substring(scope FROM 1 FOR length(tenant)) <> tenant THEN
      RAISE EXCEPTION 'role % does not reach this tenant', session_user USING ERRCODE = 'AN001';
    END IF;
  END LOOP;
  RETURN true;
END
$$;

-- Where a subscriber has to listen, and for what. From now on writers know of this session.
CREATE FUNCTION listen_to(of_scope bytea, of_tag smallint, OUT channel text, OUT tree_topic text, OUT scope_topic text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
  seed bigint := (SELECT s.seed FROM settings s);
BEGIN
  IF check_scopes(ARRAY[of_scope]) THEN
    INSERT INTO listeners (tenant, pid) VALUES (tenant_of(of_scope), pg_backend_pid())
    ON CONFLICT (tenant, pid) DO UPDATE SET pid = excluded.pid;
    channel := channel_of(tenant_of(of_scope), seed);
    tree_topic := topic_of(of_scope, of_tag, seed);
    scope_topic := topic_of(of_scope, 0, seed);
  END IF;
END
$$;

-- How many commits listeners were not told of, whoever they were for.
CREATE FUNCTION untold_commits() RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
  RETURN coalesce(pg_sequence_last_value('untold'), 0);
END
$$;

-- Waits for those who write the scope and have not committed yet: they may not know that somebody listens, and they have a time
-- already, though nobody sees what they wrote. Says whether they are through: who is not patient does not wait.
CREATE FUNCTION wait_for_writers(of_scope bytea, patiently boolean) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
  ok boolean := check_scopes(ARRAY[of_scope]);
BEGIN
  IF patiently THEN
    RETURN lock_scopes(ARRAY[of_scope], ARRAY[false]);
  END IF;
  PERFORM FROM locks l WHERE l.tenant = tenant_of(of_scope) AND l.slot = slot_of(of_scope) FOR SHARE SKIP LOCKED;
  RETURN FOUND;
END
$$;

ALTER TABLE trees ENABLE ROW LEVEL SECURITY;
ALTER TABLE feed_remains ENABLE ROW LEVEL SECURITY;
ALTER TABLE entries ENABLE ROW LEVEL SECURITY;
ALTER TABLE events ENABLE ROW LEVEL SECURITY;
ALTER TABLE deletions ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON trees FOR SELECT USING (
  substring(scope FROM 1 FOR length((SELECT reached_tenant()))) = (SELECT reached_tenant())
);
CREATE POLICY tenant ON feed_remains FOR SELECT USING (
  substring(scope FROM 1 FOR length((SELECT reached_tenant()))) = (SELECT reached_tenant())
);
CREATE POLICY tenant ON deletions FOR SELECT USING (
  substring(scope FROM 1 FOR length((SELECT reached_tenant()))) = (SELECT reached_tenant())
);
-- Of a tree that is not seen nothing is seen.
CREATE POLICY tenant ON entries FOR SELECT USING (
  (SELECT reached_tenant()) = '' OR EXISTS (SELECT FROM trees t WHERE t.tree_id = entries.tree_id)
);
CREATE POLICY tenant ON events FOR SELECT USING (
  (SELECT reached_tenant()) = '' OR EXISTS (SELECT FROM trees t WHERE t.tree_id = events.tree_id)
);

-- Events stay as they are, whoever asks: also for the owner, who would have to take the triggers away first.
CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION '% on %: what happened is not changed', TG_OP, TG_TABLE_NAME USING ERRCODE = 'AN002';
END
$$;
CREATE TRIGGER stay BEFORE UPDATE OR TRUNCATE ON events FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
CREATE TRIGGER stay BEFORE UPDATE OR DELETE OR TRUNCATE ON deletions
  FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- A log goes as a whole, and with a record of who deleted it.
CREATE FUNCTION refuse_unrecorded_delete() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF EXISTS (
    SELECT FROM gone g WHERE NOT EXISTS (
      SELECT FROM deletions d WHERE d.tree_id = g.tree_id AND d.xid = pg_current_xact_id()
    )
  ) OR EXISTS (
    SELECT FROM events e WHERE e.tree_id IN (SELECT DISTINCT g.tree_id FROM gone g)
  ) THEN
    RAISE EXCEPTION 'DELETE on events: a log is deleted as a whole, by drop_scope' USING ERRCODE = 'AN002';
  END IF;
  RETURN NULL;
END
$$;
ALTER FUNCTION refuse_unrecorded_delete() SET search_path FROM CURRENT;
CREATE TRIGGER stay_or_go AFTER DELETE ON events REFERENCING OLD TABLE AS gone
  FOR EACH STATEMENT EXECUTE FUNCTION refuse_unrecorded_delete();

-- Lets a role use this schema: one tenant's data, or all if the tenant is NULL. For the owner to call.
CREATE FUNCTION grant_access(to_role name, to_tenant text) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
  INSERT INTO access (role_name, tenant)
  VALUES (to_role, convert_to(replace(replace(to_tenant, '%', '%25'), ':', '%3A') || ':', 'UTF8'))
  ON CONFLICT (role_name) DO UPDATE SET tenant = excluded.tenant;
  EXECUTE format('GRANT USAGE ON SCHEMA %I TO %I', current_schema(), to_role);
  EXECUTE format('GRANT SELECT ON trees, entries, events, feed_remains, deletions, migrations TO %I', to_role);
  EXECUTE format('GRANT SELECT ON runs, run_events, logged_events, traces, snapshots, alerts TO %I', to_role);
  EXECUTE format('GRANT EXECUTE ON FUNCTION as_text, as_json, as_time, part_of TO %I', to_role);
  EXECUTE format(
    'GRANT EXECUTE ON FUNCTION clock_ms, read_time, newest_version, read_points, read_range, read_feed, read_scopes,
       commit_batch, commit_append, listen_to, untold_commits, wait_for_writers, sweep_expired, reached_tenant TO %I', to_role);
END
$$;

CREATE FUNCTION revoke_access(from_role name) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
  DELETE FROM access WHERE role_name = from_role;
  EXECUTE format('REVOKE ALL ON ALL TABLES IN SCHEMA %I FROM %I', current_schema(), from_role);
  EXECUTE format('REVOKE ALL ON ALL FUNCTIONS IN SCHEMA %I FROM %I', current_schema(), from_role);
  EXECUTE format('REVOKE ALL ON SCHEMA %I FROM %I', current_schema(), from_role);
END
$$;

-- Functions can be called by everybody unless one says no.
DO $$
BEGIN
  EXECUTE format('REVOKE ALL ON ALL FUNCTIONS IN SCHEMA %I FROM PUBLIC', current_schema());
END
$$;
