-- Where everything lives. The schema is the search path when this runs.

-- One row: what makes channels and topics unguessable for a role that can only send SQL.
CREATE TABLE settings (
  only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
  seed bigint NOT NULL
);
INSERT INTO settings (seed)
SELECT ('x' || substr(replace(gen_random_uuid()::text, '-', ''), 17))::bit(64)::bigint;

-- A call takes one number and gives its transactions this one and those behind it.
CREATE SEQUENCE versions AS bigint INCREMENT BY 1024 MINVALUE 1 START WITH 1;
-- The latest time that a commit was stamped with: time must not go back when a clock does.
CREATE SEQUENCE clock AS bigint MINVALUE 0 START WITH 0;
CREATE SEQUENCE tree_ids AS bigint;

-- A tree is a scope and a tag. A log keeps its head here: changed with every append, it tells
-- that the last entries are there. Room is left on each page so that this is done in place.
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

-- An index row holds 2,700 bytes and a key may have 4,096: beyond the first 2,000 is its tail,
-- and the index has the tail's hash.
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

-- Entries of logs. `time` is the entry's own, which is linked; `committed_at` that of its commit.
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
  -- The feed that lists it, and its place among the appends of its commit.
  feed_id bigint,
  feed_count integer,
  PRIMARY KEY (tree_id, sequence)
);
CREATE UNIQUE INDEX events_dedupe ON events (tree_id, dedupe, dedupe_tail_id) WHERE dedupe IS NOT NULL;
-- A feed is a column and an index, not rows of its own. Its scope is locked while it grows, like that of a log: so
-- versions become visible in their order, and nothing ever appears before what was seen.
CREATE UNIQUE INDEX events_feed ON events (feed_id, version, feed_count) WHERE feed_id IS NOT NULL;

-- What feeds list of logs that were deleted.
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

-- Which logs were deleted, by whom: without a row here no event can go.
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

-- The rows are locks: commits lock those of their scopes. Only the owner can lock a row here, so a role of one tenant reaches the
-- locks of its own tenant alone, through functions that check it.
CREATE TABLE locks (
  tenant bytea NOT NULL,
  slot smallint NOT NULL,
  PRIMARY KEY (tenant, slot)
);
-- Locked as a whole while a version and a time are taken; it has no rows.
CREATE TABLE ticking ();

-- Counts commits that listeners were not told of.
CREATE SEQUENCE untold AS bigint;

-- Sessions that listen for changes of a tenant. What a dead one leaves is swept. Not logged: a crash of the server ends the
-- sessions, and empties the table.
CREATE UNLOGGED TABLE listeners (
  tenant bytea NOT NULL,
  pid integer NOT NULL,
  PRIMARY KEY (tenant, pid)
);
