import type { Patch } from './planted-bugs.ts'

/** A bug that is planted into a copy of the built engine. Files are in dist/embedded unless their path names another folder. */
export interface Mutant {
  readonly name: string
  /** The campaign to begin with. All campaigns are tried, so this only saves time. */
  readonly first: Campaign
  /**
   * The program to begin with, if most programs take long to find the bug. After changes to the engine another program
   * may be quicker.
   */
  readonly program?: number
  readonly patches: readonly Patch[]
}

export type Campaign =
  | 'crashes'
  | 'faults'
  | 'read faults'
  | 'sync faults'
  | 'full disks'
  | 'damage'
  | 'folders'

function mutant(
  name: string,
  found: Campaign | readonly [by: Campaign, program: number],
  ...texts: readonly (readonly [string, string, string])[]
): Mutant {
  const patches = texts.map(([file, find, replace]) => ({ file, find, replace }))
  if (typeof found === 'string') return { name, first: found, patches }
  return { name, first: found[0], program: found[1], patches }
}

export const MUTANTS: readonly Mutant[] = [
  // —— syncs ——
  mutant('the log is not synced', 'crashes', [
    'group-commit.js',
    'if (this.#durable) this.#sync(this.#wal, batch);',
    'if (false) this.#sync(this.#wal, batch);',
  ]),
  mutant('a lone commit is acknowledged while its sync is under way', 'crashes', [
    'group-commit.js',
    'wal.sync(); }',
    'void wal.syncLater().catch(() => undefined); }',
  ]),
  mutant('nobody waits for the sync of a crowd', 'crashes', [
    'group-commit.js',
    'void wal.syncLater().then(() => this.#synced(batch), (error) => this.#syncFailed(batch, error));',
    'void wal.syncLater().catch(() => undefined); this.#synced(batch);',
  ]),
  mutant('readers see commits before their sync', 'crashes', [
    'group-commit.js',
    'else if (this.#write(this.#wal, batch)) {',
    'else if (this.#write(this.#wal, batch)) { this.#through(batch);',
  ]),
  mutant('the folder is not synced after a new segment', 'crashes', [
    'wal.js',
    'await syncOrFail(file); this.#disk.syncFolder();',
    'await syncOrFail(file);',
  ]),
  mutant('a segment is named before it is on the device', 'crashes', [
    'wal.js',
    'await syncOrFail(file); this.#disk.syncFolder();',
    'this.#disk.syncFolder();',
  ]),
  mutant('a commit goes to a segment whose link is not on the device', 'crashes', [
    'wal.js',
    "ahead.link === 'durable' && this.#current?.prepared !== true",
    "ahead.link !== 'missing' && this.#current?.prepared !== true",
  ]),
  mutant(
    'the log moves on to a segment whose link is not on the device',
    ['crashes', 4],
    ['wal.js', "if (this.#ahead?.link === 'written') this.#syncLink();", ''],
  ),
  mutant('the link to the next segment of a relaxed log is not synced', 'crashes', [
    'wal.js',
    "if (ahead.link === 'durable' || this.#durable) return;",
    "ahead.link = 'durable'; return;",
  ]),
  mutant('a new store is named before its log is on the device', 'crashes', [
    'creation.js',
    'await syncOrFail(file);',
    '',
  ]),
  mutant(
    'the first segment of a new store is not there by name when its manifest is',
    ['crashes', 919230127],
    ['creation.js', '} disk.syncFolder(); await writeManifest(', '} await writeManifest('],
  ),
  mutant(
    'a relaxed log is not synced before the manifest moves on',
    ['crashes', 1493028687],
    ['wal.js', 'if (old !== undefined) await syncOrFail(old);', ''],
  ),
  mutant('data files are not synced before the manifest', 'crashes', [
    'data-files.js',
    'await syncOrFail(this.#handle(id));',
    '',
  ]),
  mutant('the folder is not synced after a new data file', 'crashes', [
    'data-files.js',
    'if (this.#folderUnsynced) {',
    'if (false) {',
  ]),
  mutant('the manifest is not synced', 'crashes', ['manifest.js', 'await syncOrFail(file);', '']),
  mutant(
    'opening does not sync the log that it found',
    ['crashes', 3078499177],
    ['wal-recovery.js', 'if (!readOnly) file.sync();', ''],
  ),
  mutant('a backup is not synced', 'crashes', ['backup.js', 'await target.syncLater();', '']),

  // —— manifests and files ——
  mutant(
    'both manifests are the same file',
    'crashes',
    ['manifest.js', "const name = fileName('M', manifest.generation % 2);", "const name = fileName('M', 0);"],
    ['manifest.js', "header('M', manifest.generation % 2,", "header('M', 0,"],
  ),
  mutant(
    'the checksum of a manifest is not checked',
    ['crashes', 14],
    ['manifest.js', 'if (crc32(text) !== bytes.readUInt32LE(HEADER_BYTES + 4)) return undefined;', ''],
  ),
  mutant('segments go one checkpoint too early', 'damage', [
    'checkpointer.js',
    'await wal.removeBelow(this.#previous.walSegment);',
    'await wal.removeBelow(this.current.walSegment);',
  ]),
  mutant(
    'data files go one checkpoint too early',
    ['crashes', 2],
    ['checkpointer.js', '...(this.#previous?.files ?? [])];', '];'],
  ),
  mutant(
    'data files go although a snapshot reads them',
    ['crashes', 66581827],
    ['checkpointer.js', 'if (!unseen) return;', ''],
  ),
  mutant('the manifest names the version of its end, not that of its trees', 'crashes', [
    'checkpointer.js',
    'version: start.version,',
    'version: this.#options.committer.version,',
  ]),
  mutant(
    'the log moves on when the trees are written, not when they are frozen',
    ['sync faults', 3143567576],
    ['checkpointer.js', 'walSegment: start.rotation.segment,', 'walSegment: this.#options.wal.segment(),'],
  ),
  mutant('a manifest without a directory is written first', 'crashes', [
    'checkpointer.js',
    'if (!isEmpty(forest.directory)) yield* this.#write(forest.directory);',
    '',
  ]),
  mutant(
    'files go that a snapshot from before the first checkpoint reads',
    ['faults', 1493028687],
    [
      'checkpointer.js',
      'this.#completedAt = Number.POSITIVE_INFINITY; this.#leansOnFound = false;',
      'this.#leansOnFound = false;',
    ],
  ),

  // —— leaves that are sealed, and the leaf that was used last ——
  mutant('a sealed leaf is written without what was changed since', 'crashes', [
    'data-files.js',
    'if (block === undefined || leaf.delta !== undefined) {',
    'if (block === undefined) {',
  ]),
  mutant('a sealed leaf loses its block when its chunk could not be written', 'full disks', [
    'data-files.js',
    'block.copy(this.#chunk, at);',
    'block.copy(this.#chunk, at); leaf.block = undefined;',
  ]),
  mutant('a leaf that was split is still taken for the one to write to', 'crashes', [
    'tree-changes.js',
    'if (split === undefined && entry.removes === undefined) spot.leaf = node;',
    'spot.leaf = node;',
  ]),
  mutant('a leaf that a snapshot shares is written to', 'crashes', [
    'leaf-changes.js',
    'if (leaf === undefined || !mayChange(keeper, leaf) || entry.removes !== undefined)',
    'if (leaf === undefined || entry.removes !== undefined)',
  ]),
  mutant('a tree that got another root still has the spot of the old one', 'crashes', [
    'forest.js',
    'this.#beginChange(tree); tree.spot.forget();',
    'this.#beginChange(tree);',
  ]),

  // —— the log ——
  mutant(
    'the checksum of a frame covers its head only',
    'crashes',
    ['wal-frame.js', 'crc32(this.#checked.upTo(length))', 'crc32(this.#checked.upTo(40))'],
    [
      'wal-frame.js',
      'crc32(bytes.subarray(offset + CHECKED_AT, offset + length))',
      'crc32(bytes.subarray(offset + CHECKED_AT, offset + 40))',
    ],
  ),
  mutant('the checksum of a frame is not checked', 'crashes', [
    'wal-frame.js',
    'if (view.getUint32(offset + 4, true) !== crc32(bytes.subarray(offset + CHECKED_AT, offset + length))) return undefined;',
    '',
  ]),
  mutant(
    'a frame calls itself durable',
    ['crashes', 5],
    [
      'group-commit.js',
      'batch.frame.finish(wal.segment(), this.#durableVersion, wal.lastCrc)',
      'batch.frame.finish(wal.segment(), batch.frame.lastVersion, wal.lastCrc)',
    ],
  ),
  mutant(
    'a torn tail is called corruption',
    ['crashes', 5],
    [
      'wal-recovery.js',
      'if (frame !== undefined && frame.durableVersion >= version) {',
      'if (frame !== undefined) {',
    ],
  ),
  mutant('corruption is called a torn tail', 'damage', [
    'wal-recovery.js',
    'yield* refuseIfDurable(segments, damage, end.version + 1);',
    '',
  ]),
  mutant('a torn tail is cut off one frame too early', 'crashes', [
    'wal-recovery.js',
    'cutSegment(file, offset);',
    'cutSegment(file, SEGMENT_START);',
  ]),
  mutant('a log that ends without its end is called whole', 'damage', [
    'wal-recovery.js',
    'return bytes.length - offset >= END_BYTES && (yield* isZero(bytes, offset)) ? undefined : offset;',
    'return (yield* isZero(bytes, offset)) ? undefined : offset;',
  ]),
  mutant('no end is written behind the log', 'damage', [
    'wal.js',
    'this.#put(frame);',
    'this.#put(frame.subarray(0, frame.length - END_BYTES));',
  ]),
  mutant('a segment that is missing ends the log', 'damage', [
    'wal-recovery.js',
    "if (!rest.delete(id)) throw corrupt(name, 0, 'the file is missing');",
    'if (!rest.delete(id) && chain.length > 0) break;',
  ]),
  mutant(
    'a segment with commits that no link leads to is left out',
    ['damage', 1_395_857_638],
    ['wal-recovery.js', 'yield* refuseUnnamed(disk, [...rest], chain.at(-1));', ''],
  ),
  mutant('the id of a store is not checked', 'damage', [
    'format.js',
    'if (storeId !== undefined && found !== storeId) {',
    'if (false) {',
  ]),
  mutant(
    'segments behind a torn tail keep their commits',
    ['crashes', 2390727658],
    ['wal-recovery.js', 'if (later.id > segment.id) cutFile(disk, later.name, SEGMENT_START);', '{}'],
  ),
  mutant(
    'links that were found are not written anew',
    ['sync faults', 66581827],
    ['open.js', 'replayed.tailBytes > 0 || replayed.segments > 1', 'replayed.tailBytes > 0'],
  ),
  mutant(
    'the only manifest is gone for a moment',
    ['crashes', 919230127],
    [
      'checkpointer.js',
      'const only = manifest === this.current && this.#previous === undefined;',
      'const only = false;',
    ],
  ),
  mutant('a removal is lost in the log', 'crashes', [
    'wal-frame.js',
    'if ((flags & REMOVAL) !== 0) return removalOf(key, version, time);',
    '',
  ]),
  mutant(
    'an expiry is lost in the log',
    ['crashes', 2933028817],
    ['wal-frame.js', 'expiresAt = view.getFloat64(o, true);', ''],
  ),

  // —— failures ——
  mutant(
    'nothing is cut back after a write that failed',
    ['faults', 2933028817],
    ['group-commit.js', 'wal.cutBack();', ''],
  ),
  mutant(
    'a short write counts as a whole one',
    ['full disks', 1],
    ['disk/disk.js', 'done += count;', 'done = buffer.length;'],
  ),
  mutant(
    'a refused batch keeps its version',
    ['full disks', 4],
    ['committer.js', 'batch.discard(); this.#lastVersion = this.version;', 'batch.discard();'],
  ),
  mutant('a refused batch stays pending', 'full disks', [
    'batch.js',
    'tree.pending = undefined; tree.drop = undefined; tree.head = undefined;',
    'tree.drop = undefined; tree.head = undefined;',
  ]),
  mutant(
    'a refused append keeps its sequence',
    ['full disks', 48],
    [
      'batch.js',
      'tree.pending = undefined; tree.drop = undefined; tree.head = undefined;',
      'tree.pending = undefined; tree.drop = undefined;',
    ],
  ),
  mutant(
    'a failed sync of a crowd is ignored',
    ['faults', 919230127],
    ['group-commit.js', '(error) => this.#syncFailed(batch, error));', '() => this.#synced(batch));'],
  ),
  mutant(
    'a failed sync is tried again',
    ['faults', 4],
    ['group-commit.js', 'wal.sync(); }', 'try { wal.sync(); } catch { wal.sync(); } }'],
  ),
  mutant(
    'after a failed sync commits go on',
    ['faults', 1],
    ['group-commit.js', 'this.broken ??= unknown;', ''],
  ),
  mutant(
    'a checkpoint goes on after one whose sync failed',
    ['sync faults', 37],
    ['checkpointer.js', 'if (group.broken !== undefined) throw group.readOnly();', ''],
  ),
  mutant('what was recovered is not written anew', 'faults', [
    'embedded-store.js',
    'this.#recovered = parts.persistence?.needsCheckpoint === true;',
    'this.#recovered = false;',
  ]),
  mutant(
    'the manifest that was found is not written anew',
    ['sync faults', 9],
    ['checkpointer.js', 'if (this.#confirmed)', 'if (true)'],
  ),
  mutant(
    'half of a commit that could not be read stays in the log',
    ['faults', 19],
    ['committer.js', 'if (recording.begun) this.group.abandon();', ''],
  ),
  mutant('commits held back for a checkpoint are never released', 'crashes', [
    'checkpointer.js',
    'this.#options.committer.group.release();',
    '',
  ]),
  mutant(
    'a full disk breaks the handle',
    ['faults', 730938938],
    ['wal-segment.js', 'if (!isFull(error)) throw error;', 'throw error;'],
  ),

  mutant('nobody looks whether the folder is still there', 'folders', [
    'group-commit.js',
    'this.#checkFolder(wal);',
    '',
  ]),
  mutant('a relaxed log looks for its folder only once', 'folders', [
    'group-commit.js',
    'this.#folderChecked = false; });',
    '});',
  ]),
  mutant('a folder that is gone refuses one commit and goes on', 'folders', [
    'group-commit.js',
    'this.broken ??= error; this.#refuse([batch], error);',
    'this.#refuse([batch], error); this.#folderChecked = true;',
  ]),

  mutant(
    'a lack of descriptors breaks the handle',
    ['faults', 2933028817],
    ['checkpointer.js', 'if (lackOfDescriptors(error) !== undefined) {', 'if (false) {'],
  ),

  // —— trees ——
  mutant('the checksum of a block is not checked', 'damage', [
    'data-files.js',
    'if ((crc32(block) | 0) !== node.crc)',
    'if (false)',
  ]),
  mutant(
    'the checksum of a block covers its first half',
    'damage',
    [
      'data-files.js',
      'crc32(this.#chunk.subarray(at, at + length))',
      'crc32(this.#chunk.subarray(at, at + (length >> 1)))',
    ],
    [
      'data-files.js',
      '(crc32(block) | 0) !== node.crc',
      '(crc32(block.subarray(0, length >> 1)) | 0) !== node.crc',
    ],
  ),
  mutant('changes that wait for their leaf are dropped when it is read', 'crashes', [
    'node-store.js',
    'leaf.delta === undefined ? entries : merge(entries, leaf.delta)',
    'entries',
  ]),
  mutant(
    'a dedupe key is not written with its event',
    ['crashes', 6],
    ['committer.js', 'recording.put(known, dedupe.key, dedupeValue(linked, memo));', ''],
  ),
  mutant(
    'an entry that was put again expires with its old time',
    ['crashes', 2933028817],
    ['committer.js', 'if (entry?.expiresAt === expiresAt)', 'if (entry !== undefined)'],
  ),
  mutant('an overwritten block still counts as live', 'crashes', [
    'data-files.js',
    'if (node.home !== undefined) this.release(node.home);',
    '',
  ]),
  mutant('a block that was never written counts as freed', 'full disks', [
    'data-files.js',
    'homeOf(node); node.file = current.id;',
    'node.file = current.id;',
  ]),

  // —— drops, and the heads of logs ——
  mutant(
    'a head is not written with its event',
    ['crashes', 6],
    ['committer.js', 'recording.imply(heads, { key: HEAD_KEY, value, version, time, expiresAt: 0 });', ''],
  ),
  mutant(
    'a drop does not know of the heads of events in the same commit',
    ['faults', 919230127],
    [
      'committer.js',
      'this.#endLog(recording); for (const tag of this.#forest.tagsOf(scope))',
      'for (const tag of this.#forest.tagsOf(scope))',
    ],
  ),
  mutant(
    'a head does not follow from the log that was found',
    ['crashes', 18],
    ['recovered-tail.js', 'this.#heads?.set(HEAD_KEY, ~number);', '{}'],
  ),
  mutant(
    'a drop forgets the heads of logs',
    ['crashes', 6],
    [
      'committer.js',
      'recording.drop(this.#forest.tree(scope, tag));',
      'if ((tag & 0xc0) !== 0xc0) recording.drop(this.#forest.tree(scope, tag));',
    ],
  ),
  mutant(
    'a drop forgets the dedupe keys',
    ['crashes', 6],
    [
      'committer.js',
      'recording.drop(this.#forest.tree(scope, tag));',
      'if ((tag & 0xc0) !== 0x80) recording.drop(this.#forest.tree(scope, tag));',
    ],
  ),
  mutant('a drop takes only trees that the directory knows', 'crashes', [
    'forest.js',
    'return [...new Set([...listed, ...known])];',
    'return listed;',
  ]),
  mutant(
    'a drop takes only trees that are in memory',
    ['crashes', 2],
    ['forest.js', 'return [...new Set([...listed, ...known])];', 'return known;'],
  ),
  mutant('a drop is lost in the log', 'crashes', [
    'wal-frame.js',
    'if ((flags & DROP) !== 0) return dropOf(version, time);',
    '',
  ]),
  mutant(
    'what was looked up before a drop found in the log is still found',
    ['crashes', 2933028817],
    [
      'forest.js',
      'return changes.has(DROP_KEY) ? undefined : this.findIn(tree.root, key);',
      'return this.findIn(tree.root, key);',
    ],
  ),
  mutant('a drop found in the log spares what the log holds before it', 'crashes', [
    'recovered-tail.js',
    'if (key === DROP_KEY) this.#changes.clear();',
    'if (key === DROP_KEY) {}',
  ]),
  mutant(
    'a drop found in the log spares what was in the tree',
    ['crashes', 2933028817],
    [
      'forest.js',
      "tree.root = change.removes === 'tree' ? this.#bury(tree.root) : apply(this.nodes, tree.root, change);",
      "if (change.removes !== 'tree') tree.root = apply(this.nodes, tree.root, change);",
    ],
  ),
  mutant(
    'a commit is judged as if no drop were pending',
    ['crashes', 8],
    [
      'newest.js',
      'return tree.drop === undefined ? forest.find(tree, key) : undefined;',
      'return forest.find(tree, key);',
    ],
  ),
  mutant(
    'what was pending before a drop stays pending',
    ['crashes', 6],
    ['batch.js', 'tree.drop = change; tree.pending = undefined;', 'tree.drop = change;'],
  ),
  mutant(
    'a log goes on after a drop where it was',
    ['crashes', 6],
    [
      'batch.js',
      'tree.pending = undefined; tree.head = undefined; return;',
      'tree.pending = undefined; return;',
    ],
  ),
  mutant(
    'a drop is pending for ever',
    ['crashes', 6],
    ['batch.js', 'if (tree.drop === change) tree.drop = undefined;', ''],
  ),
  mutant('a refused batch leaves its drop pending', 'full disks', [
    'batch.js',
    'tree.pending = undefined; tree.drop = undefined; tree.head = undefined;',
    'tree.pending = undefined; tree.head = undefined;',
  ]),
  mutant(
    'a commit that could not be read leaves its drop pending',
    ['read faults', 2],
    [
      'group-commit.js',
      'tree.pending = undefined; tree.drop = undefined; tree.head = undefined;',
      'tree.pending = undefined; tree.head = undefined;',
    ],
  ),
  mutant(
    'entries that were looked up outlive a drop',
    ['crashes', 8],
    [
      'forest.js',
      'tree.points = undefined; this.change(tree, root => this.#bury(root));',
      'this.change(tree, root => this.#bury(root));',
    ],
  ),
  mutant(
    'a drop is seen by snapshots from before it',
    ['crashes', 5],
    [
      'forest.js',
      'this.change(tree, root => this.#bury(root));',
      'tree.root = this.#bury(tree.root); this.markDirty(tree);',
    ],
  ),
  mutant('what is dropped is never freed', 'crashes', [
    'forest.js',
    'if (this.nodes.hasFiles && !isEmpty(root)) this.graves.push(root);',
    '',
  ]),
  mutant(
    'what is dropped is freed twice',
    ['crashes', 2933028817],
    ['forest.js', 'this.graves.push(root);', 'this.graves.push(root, root);'],
  ),
  mutant(
    'only the root of what is dropped is freed',
    ['crashes', 3078499177],
    ['graves.js', 'if (node instanceof Leaf) return;', 'return;'],
  ),
  mutant(
    'what is dropped during a checkpoint is freed by it',
    ['full disks', 23],
    ['checkpointer.js', 'forest.graves = []; forest.nodes.dirtyBytes = 0;', 'forest.nodes.dirtyBytes = 0;'],
  ),
  mutant('a checkpoint that fails forgets what it had to free', 'full disks', [
    'checkpointer.js',
    'forest.graves = start.graves.concat(forest.graves);',
    '',
  ]),
  mutant(
    'the rest of the log is taken in by two at once',
    ['crashes', 3078499177],
    ['forest.js', 'this.#tail?.next()', 'this.#tail.next()'],
  ),
  mutant("the engine's own scope is listed", 'crashes', ['forest.js', "scope !== '' && (from", '(from']),
]
