-- The records that the client and the functions exchange. `wire-types.ts` has the same types with the same fields in the same order.
--
-- A tree is addressed by scope, tag and kind. The kinds are 0 entries, 1 a log, 2 the head of a log, 3 the dedupe keys of a log and
-- 4 a feed. Kinds 1 to 3 have the tag of the log. Keys come in two parts, as in the table `entries`. `sequence` is the number that a
-- key of a log (its sequence) or of a feed (its version) stands for.

CREATE TYPE place AS (scope bytea, tag smallint, kind smallint, key bytea, tail bytea, sequence bigint);

-- A range of keys, from inclusive, to exclusive; `to_key` is NULL without an upper bound. Logs use only the sequences, feeds the
-- sequences (versions) and counts, other trees the keys.
CREATE TYPE key_range AS (
  from_key bytea, from_tail bytea, from_sequence bigint, from_count integer,
  to_key bytea, to_tail bytea, to_sequence bigint, to_count integer,
  backwards boolean, at_most bigint
);

-- A batch of transactions. `tx` numbers the transactions from 0. `tree` and `feed` number the trees of the batch from 1. A drop
-- begins a new step; operations take effect step by step. A drop addresses its scope as a tree with tag 0.
CREATE TYPE batch_tree AS (
  scope bytea, tag smallint, kind smallint,
  -- Whether the scope is written, and whether the tree is created if it is missing.
  is_written boolean, is_created boolean
);
-- A version that transactions found at a key; 0 if it was absent.
CREATE TYPE batch_point AS (
  tree integer, kind smallint, key bytea, tail bytea, sequence bigint, version bigint, txs integer[]
);
-- `digest` is the hash of the keys and versions that the transaction found in the range.
CREATE TYPE batch_range AS (tx integer, tree integer, range key_range, digest bytea);
CREATE TYPE batch_drop AS (tx integer, step integer, tree integer);
-- A NULL value deletes the key.
CREATE TYPE batch_put AS (
  tx integer, step integer, tree integer, key bytea, tail bytea, value bytea, expires_at bigint, time bigint
);
-- `place` numbers the appends of the batch, `feed_count` those of the transaction.
CREATE TYPE batch_append AS (
  place integer, tx integer, step integer, tree integer, time bigint, body_hash bytea, body bytea,
  dedupe bytea, dedupe_tail bytea, memo bytea, feed integer, feed_count integer
);

-- The first read of a transaction that would now find something else: the number of the point or of the range.
CREATE TYPE batch_conflict AS (tx integer, point integer, range integer);
-- `memo` is NULL for a new event: the client has it.
CREATE TYPE batch_appended AS (
  place integer, sequence bigint, time bigint, hash bytea, is_duplicate boolean, memo bytea
);
-- `version` belongs to transaction 0; transaction n has `version + n`.
CREATE TYPE batch_outcome AS (
  version bigint, committed_at bigint, conflicts batch_conflict[], appended batch_appended[]
);

-- A transaction of one append that relies on nothing but entries of the same scope. It is transaction 0 of its outcome.
CREATE TYPE lone_append AS (
  scope bytea, tag smallint, time bigint, body_hash bytea, body bytea,
  dedupe bytea, dedupe_tail bytea, memo bytea, feed_scope bytea, feed_tag smallint
);
CREATE TYPE lone_point AS (tag smallint, key bytea, tail bytea, version bigint);
