-- Access. Roles write only through functions that run as the owner and check every scope. They read what row-level security shows
-- them. So a role that sends its own SQL can do no more than Annals does for it.

-- The tenant that each role reaches. It depends on the role and not on a setting of the session, which any SQL could change.
CREATE TABLE access (
  role_name name PRIMARY KEY,
  -- The prefix of the tenant's scopes, including the colon; NULL for all tenants.
  tenant bytea
);
INSERT INTO access (role_name) VALUES (session_user);

-- The prefix of all scopes that the session's role reaches: empty for all scopes, NULL for none.
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

-- Raises an error unless the session's role reaches all of these scopes.
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

-- Registers this session as a listener. Returns the channel to listen to, and the topics that concern the tree.
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

-- The number of commits, of all tenants, that sent no notification because the queue was nearly full.
CREATE FUNCTION untold_commits() RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
  RETURN coalesce(pg_sequence_last_value('untold'), 0);
END
$$;

-- Waits for the commits to a scope that are under way in any session. They may not know of a new listener, and they already have a time
-- though their writes are not visible yet. If `patiently` is false it does not wait. Returns whether all of them have ended.
CREATE FUNCTION wait_for_writers(of_scope bytea, patiently boolean) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
  ok boolean := check_scopes(ARRAY[of_scope]);
BEGIN
  IF patiently THEN
    RETURN lock_scopes(ARRAY[(of_scope, 0, 0, false, false)::batch_tree]) IS NOT NULL;
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
-- A role that does not see a tree sees none of its rows.
CREATE POLICY tenant ON entries FOR SELECT USING (
  (SELECT reached_tenant()) = '' OR EXISTS (SELECT FROM trees t WHERE t.tree_id = entries.tree_id)
);
CREATE POLICY tenant ON events FOR SELECT USING (
  (SELECT reached_tenant()) = '' OR EXISTS (SELECT FROM trees t WHERE t.tree_id = events.tree_id)
);

-- Nobody changes events. Even the owner would have to remove the triggers first.
CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION '% on %: events are immutable', TG_OP, TG_TABLE_NAME USING ERRCODE = 'AN002';
END
$$;
CREATE TRIGGER stay BEFORE UPDATE OR TRUNCATE ON events FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
CREATE TRIGGER stay BEFORE UPDATE OR DELETE OR TRUNCATE ON deletions
  FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- A log is deleted as a whole, and with a record of the role that deleted it.
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

-- Gives a role access to the data of one tenant, or of all tenants if `to_tenant` is NULL. Only the owner can call it.
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
       commit_batch, commit_append, hold_and_read, commit_held, listen_to, untold_commits, wait_for_writers, sweep_expired,
       reached_tenant TO %I', to_role);
END
$$;

-- Takes all access to this schema away from a role.
CREATE FUNCTION revoke_access(from_role name) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
  DELETE FROM access WHERE role_name = from_role;
  EXECUTE format('REVOKE ALL ON ALL TABLES IN SCHEMA %I FROM %I', current_schema(), from_role);
  EXECUTE format('REVOKE ALL ON ALL FUNCTIONS IN SCHEMA %I FROM %I', current_schema(), from_role);
  EXECUTE format('REVOKE ALL ON SCHEMA %I FROM %I', current_schema(), from_role);
END
$$;

-- PostgreSQL lets every role call a new function, so this has to be revoked.
DO $$
BEGIN
  EXECUTE format('REVOKE ALL ON ALL FUNCTIONS IN SCHEMA %I FROM PUBLIC', current_schema());
END
$$;
