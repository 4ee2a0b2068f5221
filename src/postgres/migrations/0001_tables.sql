-- The tables. The search path is the schema of the store while migrations run.

-- One row with a secret. Channel and topic names are hashed with it, so a role that can only send SQL cannot guess them.
CREATE TABLE settings (
  only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
  seed bigint NOT NULL
);
INSERT INTO settings (seed)
SELECT ('x' || substr(replace(gen_random_uuid()::text, '-', ''), 17))::bit(64)::bigint;

-- Each call takes one number. Its transactions get this version and the 1,023 after it.
CREATE SEQUENCE versions AS bigint INCREMENT BY 1024 MINVALUE 1 START WITH 1;
-- The latest commit time. Commit times never go back, even when the server's clock is set back.
CREATE SEQUENCE clock AS bigint MINVALUE 0 START WITH 0;
CREATE SEQUENCE tree_ids AS bigint;

-- A tree is a scope and a tag. The row of a log also holds the log's head, which every append updates: the head reveals a log whose
-- last events are missing. The fill factor leaves room on each page, so that head updates stay on the page (HOT).
CREATE TABLE trees (
  tree_id bigint PRIMARY KEY,
  scope bytea NOT NULL,
  tag smallint NOT NULL,
  length bigint NOT NULL DEFAULT 0,
  hash bytea,
  last_time bigint NOT NULL DEFAULT 0,
  version bigint NOT NULL DEFAULT 0,
  committed_at bigint NOT NULL DEFAULT 0,
  UNIQUE (scope, tag)
) WITH (fillfactor = 60);

-- A key may have 4,096 bytes, but an index row holds only 2,700. So `key` has the first 2,000 bytes, `tail` has the rest, and the
-- index holds the hash of the tail (`tail_id`).
CREATE TABLE entries (
  tree_id bigint NOT NULL,
  key bytea NOT NULL,
  tail bytea NOT NULL DEFAULT '',
  tail_id bytea NOT NULL DEFAULT '',
  value bytea NOT NULL,
  version bigint NOT NULL,
  committed_at bigint NOT NULL,
  expires_at bigint NOT NULL DEFAULT 0,
  PRIMARY KEY (tree_id, key, tail_id)
);
CREATE INDEX entries_expiry ON entries (expires_at) WHERE expires_at > 0;

-- The events of all logs. `time` is the event's own time, which its hash covers; `committed_at` is the time of its commit.
CREATE TABLE events (
  tree_id bigint NOT NULL,
  sequence bigint NOT NULL,
  version bigint NOT NULL,
  time bigint NOT NULL,
  committed_at bigint NOT NULL,
  prev_hash bytea NOT NULL,
  hash bytea NOT NULL,
  body bytea NOT NULL,
  dedupe bytea,
  dedupe_tail bytea NOT NULL DEFAULT '',
  dedupe_tail_id bytea NOT NULL DEFAULT '',
  memo bytea NOT NULL DEFAULT '',
  -- The feed that lists the event, and the event's place among the appends of its commit.
  feed_id bigint,
  feed_count integer,
  PRIMARY KEY (tree_id, sequence)
);
CREATE UNIQUE INDEX events_dedupe ON events (tree_id, dedupe, dedupe_tail_id) WHERE dedupe IS NOT NULL;
-- A feed has no rows of its own, only this index. Commits lock the scope of the feed like that of a log. So versions become visible
-- in order, and nothing ever appears in a feed before an entry that a reader has already seen.
CREATE UNIQUE INDEX events_feed ON events (feed_id, version, feed_count) WHERE feed_id IS NOT NULL;

-- What feeds list of logs that have been deleted.
CREATE TABLE feed_remains (
  feed_id bigint NOT NULL,
  version bigint NOT NULL,
  feed_count integer NOT NULL,
  sequence bigint NOT NULL,
  time bigint NOT NULL,
  committed_at bigint NOT NULL,
  scope bytea NOT NULL,
  PRIMARY KEY (feed_id, version, feed_count)
);

-- A record of each deleted log and of the role that deleted it. A trigger refuses to delete events without such a record.
CREATE TABLE deletions (
  tree_id bigint PRIMARY KEY,
  scope bytea NOT NULL,
  tag smallint NOT NULL,
  length bigint NOT NULL,
  hash bytea,
  version bigint NOT NULL,
  committed_at bigint NOT NULL,
  role_name name NOT NULL,
  xid xid8 NOT NULL
);

-- The rows are locks: a commit locks the rows of its scopes. Only the owner can lock rows here. A tenant's role can lock them only
-- through functions, which check that the rows belong to its own tenant.
CREATE TABLE locks (
  tenant bytea NOT NULL,
  slot smallint NOT NULL,
  PRIMARY KEY (tenant, slot)
);
-- An empty table. `tick` locks it while it takes a version and a time.
CREATE TABLE ticking ();

-- Counts the commits that sent no notification because the server's queue was nearly full.
CREATE SEQUENCE untold AS bigint;

-- Sessions that listen for changes of a tenant. `sweep_listeners` removes the rows of sessions that have ended. The table is unlogged
-- because a server crash ends all sessions anyway.
CREATE UNLOGGED TABLE listeners (
  tenant bytea NOT NULL,
  pid integer NOT NULL,
  PRIMARY KEY (tenant, pid)
);
