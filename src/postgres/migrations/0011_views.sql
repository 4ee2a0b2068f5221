-- Views for people, with plain columns instead of scopes, tags and bytes. Values are shown as `json`, because `jsonb` cannot hold
-- U+0000. The views show only the tenants that the reader's role reaches.

-- The bytes as text, or NULL if they are not UTF-8. Annals stores only UTF-8, but a query must not fail because of one row.
CREATE FUNCTION as_text(bytes bytea) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  RETURN convert_from(bytes, 'UTF8');
EXCEPTION WHEN character_not_in_repertoire OR untranslatable_character THEN
  RETURN NULL;
END
$$;

-- The value as JSON, or NULL if it is not JSON. A value with bytes in it begins with a zero byte and the length of its text in four bytes.
-- The text follows, then the bytes. Only the text is shown, in which a string of U+0000, `r` and a number stands for so many bytes.
CREATE FUNCTION as_json(bytes bytea) RETURNS json LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  IF length(bytes) > 5 AND get_byte(bytes, 0) = 0 THEN
    bytes := substring(bytes FROM 6 FOR
      (get_byte(bytes, 1) << 24) + (get_byte(bytes, 2) << 16) + (get_byte(bytes, 3) << 8) + get_byte(bytes, 4));
  END IF;
  RETURN convert_from(bytes, 'UTF8')::json;
EXCEPTION WHEN character_not_in_repertoire OR untranslatable_character OR invalid_text_representation
  OR substring_error OR numeric_value_out_of_range THEN
  RETURN NULL;
END
$$;

CREATE FUNCTION as_time(ms bigint) RETURNS timestamptz LANGUAGE sql IMMUTABLE AS $$
  SELECT to_timestamp(ms / 1000.0)
$$;

-- A part of a scope: 1 tenant, 2 app, 3 agent, 4 run.
CREATE FUNCTION part_of(scope bytea, part integer) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  RETURN replace(replace(split_part(convert_from(scope, 'UTF8'), ':', part), '%3A', ':'), '%25', '%');
EXCEPTION WHEN character_not_in_repertoire OR untranslatable_character THEN
  RETURN NULL;
END
$$;

-- The trees that the reader's role reaches.
CREATE VIEW reached_trees WITH (security_barrier) AS
SELECT t.* FROM trees t
WHERE substring(t.scope FROM 1 FOR length((SELECT reached_tenant()))) = (SELECT reached_tenant());

CREATE VIEW runs WITH (security_barrier) AS
SELECT part_of(t.scope, 1) AS tenant, as_text(substring(e.key || e.tail FROM 2)) AS run_id, r.record ->> 'status' AS status,
  as_time((r.record ->> 'createdAt')::bigint) AS created_at, as_time(e.committed_at) AS changed_at, r.record
FROM reached_trees t
JOIN entries e USING (tree_id)
CROSS JOIN LATERAL (SELECT as_json(e.value) AS record) r
WHERE t.tag = 5 AND e.key >= 'r' AND e.key < 's';

-- The events of the ledger.
CREATE VIEW run_events WITH (security_barrier) AS
SELECT part_of(t.scope, 1) AS tenant, part_of(t.scope, 4) AS run_id, e.sequence + 1 AS run_seq,
  as_time(e.time) AS persisted_at, r.event ->> 'eventType' AS event_type, r.event ->> 'stepId' AS step_id, r.event,
  encode(e.prev_hash, 'hex') AS prev_hash, encode(e.hash, 'hex') AS hash
FROM reached_trees t
JOIN events e USING (tree_id)
CROSS JOIN LATERAL (SELECT as_json(e.body) AS event) r
WHERE t.tag = 6;

-- The events of `events.append`. A body is the length of the type in two bytes, the type, and the payload.
CREATE VIEW logged_events WITH (security_barrier) AS
SELECT part_of(t.scope, 1) AS tenant, part_of(t.scope, 2) AS app, part_of(t.scope, 3) AS agent, part_of(t.scope, 4) AS run_id,
  e.sequence, as_time(e.time) AS time, as_text(substring(e.body FROM 3 FOR l.length)) AS type,
  as_json(substring(e.body FROM 3 + l.length)) AS payload,
  encode(e.prev_hash, 'hex') AS prev_hash, encode(e.hash, 'hex') AS hash
FROM reached_trees t
JOIN events e USING (tree_id)
CROSS JOIN LATERAL (SELECT get_byte(e.body, 0) * 256 + get_byte(e.body, 1) AS length) l
WHERE t.tag = 2;

CREATE VIEW traces WITH (security_barrier) AS
SELECT part_of(t.scope, 1) AS tenant, part_of(t.scope, 4) AS run_id,
  as_text(substring(e.key || e.tail FROM 2)) AS trace_id, as_time(e.committed_at) AS recorded_at, as_json(e.value) AS trace
FROM reached_trees t
JOIN entries e USING (tree_id)
WHERE t.tag = 4 AND e.key >= 'r' AND e.key < 's';

-- The state of each run as of the last stored projection.
CREATE VIEW snapshots WITH (security_barrier) AS
SELECT part_of(t.scope, 1) AS tenant, part_of(t.scope, 4) AS run_id, as_json(e.value) AS state,
  (
    SELECT json_agg(s.step ORDER BY c.key, s.i)
    FROM entries c CROSS JOIN LATERAL json_array_elements(as_json(c.value)) WITH ORDINALITY AS s (step, i)
    WHERE c.tree_id = t.tree_id AND c.key >= 's' AND c.key < 't'
  ) AS steps,
  as_time(e.committed_at) AS projected_at
FROM reached_trees t
JOIN entries e USING (tree_id)
WHERE t.tag = 8 AND e.key = 'r' AND part_of(t.scope, 4) <> '_shared';

CREATE VIEW alerts WITH (security_barrier) AS
SELECT part_of(t.scope, 1) AS tenant, part_of(t.scope, 4) AS run_id,
  as_time(e.committed_at) AS raised_at, as_json(e.value) AS alert
FROM reached_trees t
JOIN entries e USING (tree_id)
WHERE t.tag = 8 AND e.key >= 'a' AND e.key < 'b' AND part_of(t.scope, 4) <> '_shared';

DO $$
BEGIN
  EXECUTE format('REVOKE ALL ON ALL FUNCTIONS IN SCHEMA %I FROM PUBLIC', current_schema());
END
$$;
