-- Who may do what.

-- Scopes of other tenants are refused. For now there are none.
CREATE FUNCTION check_scopes(scopes bytea[]) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  RETURN true;
END
$$;

-- Where a subscriber has to listen, and for what.
CREATE FUNCTION topics(of_scope bytea, of_tag smallint, OUT channel text, OUT tree_topic text, OUT scope_topic text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
  seed bigint := (SELECT s.seed FROM settings s);
BEGIN
  IF NOT check_scopes(ARRAY[of_scope]) THEN
    RETURN;
  END IF;
  channel := channel_of(tenant_of(of_scope), seed);
  tree_topic := topic_of(of_scope, of_tag, seed);
  scope_topic := topic_of(of_scope, 0, seed);
END
$$;
