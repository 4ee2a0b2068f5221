import type { Patch } from './planted-bugs.ts'

/** A bug that is planted into the code with which launches, the outbox and the file registry write and read. */
export interface LaunchMutant {
  readonly name: string
  /** The campaign that hunts the bug, and the seed of a program that is known to find it. */
  readonly campaign: LaunchHunt
  readonly seed: number
  readonly patches: readonly Patch[]
}

export type LaunchHunt = 'tiny launch' | 'ending launch' | 'small launch' | 'outbox' | 'registry'

function mutant(
  name: string,
  [campaign, seed]: readonly [LaunchHunt, seed: number],
  ...texts: readonly (readonly [string, string, string])[]
): LaunchMutant {
  const patches = texts.map(([file, find, replace]) => ({ file, find, replace }))
  return { name, campaign, seed, patches }
}

const LINE = 'disk/line-file.js'
const FILE = 'disk/durable-file.js'

export const LAUNCH_MUTANTS: readonly LaunchMutant[] = [
  // —— lines: the log, the outbox, the registry ——
  mutant(
    'N2: the launch log is not synced',
    ['tiny launch', 1],
    [LINE, 'try { await this.#file.syncLater(); }', 'try { }'],
  ),
  mutant(
    'N11: the outbox is not synced',
    ['outbox', 1],
    [LINE, 'try { await this.#file.syncLater(); }', 'try { }'],
  ),
  mutant(
    'L22: the registry is not synced',
    ['registry', 1],
    [LINE, 'try { await this.#file.syncLater(); }', 'try { }'],
  ),
  mutant(
    'ND4: a line and its LF are one write',
    ['tiny launch', 1],
    [LINE, 'text: line.slice(0, -1)', 'text: line'],
    [LINE, "ended === undefined ? ''", "true ? ''"],
  ),
  mutant(
    'N2: a line is acknowledged before its LF is durable',
    ['tiny launch', 1],
    [LINE, 'this.#unended = begun;', 'this.#unended = begun; begun?.resolve();'],
  ),
  mutant(
    'L22: lines that a killed process left are not synced',
    ['registry', 1],
    [LINE, 'await file.syncLater(); disk.syncFolder(folderOf(name));', 'disk.syncFolder(folderOf(name));'],
  ),
  mutant(
    'N2: the name of a new file of lines is not synced',
    ['tiny launch', 1],
    [LINE, 'disk.syncFolder(folderOf(name)); return new', 'return new'],
  ),
  mutant(
    'N11: the name of a new outbox is not synced',
    ['outbox', 1],
    [LINE, 'disk.syncFolder(folderOf(name)); return new', 'return new'],
  ),
  mutant(
    'ND4: a torn line of the log is not cut off',
    ['tiny launch', 1],
    ['launch/launches.js', 'await log.cut(bytes);', ''],
  ),
  mutant(
    'ND4: a torn line is cut off before it is set aside',
    ['tiny launch', 1],
    ['launch/log-file.js', 'const aside =', 'this.#lines.cut(bytes); const aside ='],
  ),
  mutant(
    'L22: a torn line of the registry is not cut off',
    ['registry', 1],
    ['ledger/event-id-registry.js', 'file.cut(end);', ''],
  ),
  mutant(
    'N11: a torn line of the outbox is not cut off',
    ['outbox', 1],
    ['telemetry/outbox.js', 'if (this.#staleBytes > 0) await this.#rewrite(); }', '}'],
  ),
  mutant(
    'L22: an id is given before it is in the registry',
    ['registry', 1],
    [
      'ledger/event-id-registry.js',
      'if (known === undefined) await this.#write(line);',
      'if (known === undefined) void this.#write(line);',
    ],
  ),
  // —— files that are replaced ——
  mutant(
    'N5: a replaced file is not synced: the snapshot',
    ['tiny launch', 1],
    [FILE, 'await file.syncLater();', ''],
  ),
  mutant(
    'N11: a replaced file is not synced: the outbox',
    ['outbox', 1],
    [FILE, 'await file.syncLater();', ''],
  ),
  mutant(
    'N5: the folder is not synced after a rename: the snapshot',
    ['tiny launch', 1],
    [FILE, 'disk.rename(temporary, name); disk.syncFolder(folderOf(name));', 'disk.rename(temporary, name);'],
  ),
  mutant(
    'N4: the folder is not synced after a rename: evidence of a model',
    ['small launch', 8],
    [
      FILE,
      'disk.syncFolder(folderOf(name)); }',
      'if (name === "snapshot.json") disk.syncFolder(folderOf(name)); }',
    ],
  ),
  mutant(
    'N5: the snapshot is overwritten in place',
    ['tiny launch', 1],
    [
      'launch/snapshot.js',
      'import { readFile, replaceFile }',
      'import { readFile, writeNewFile as replaceFile }',
    ],
  ),
  mutant(
    'ND4: torn lines that are kept are overwritten in place',
    ['tiny launch', 4],
    [
      'launch/log-file.js',
      'import { readFile, replaceFile, unlessMissing }',
      'import { readFile, writeNewFile as replaceFile, unlessMissing }',
    ],
  ),
  mutant(
    'ND9: evidence of a model is overwritten in place',
    ['small launch', 1],
    [
      'launch/llm/evidence.js',
      'import { makeFolders, readFile, removeIfThere, replaceFile }',
      'import { makeFolders, readFile, removeIfThere, writeNewFile as replaceFile }',
    ],
  ),
  mutant(
    'N11: the outbox is overwritten in place',
    ['outbox', 1],
    [
      'telemetry/outbox.js',
      'import { readFile, removeIfThere, replaceFile }',
      'import { readFile, removeIfThere, writeNewFile as replaceFile }',
    ],
  ),
  mutant(
    'N11: the removal of an empty outbox is not synced',
    ['outbox', 1],
    ['telemetry/outbox.js', 'disk.syncFolder();', ''],
  ),
  // —— folders ——
  mutant(
    "N2: the name of a run's folder is not synced",
    ['tiny launch', 1],
    ['launch/launches.js', 'runs.syncFolder();', ''],
  ),
  mutant(
    'N8: the folders of artifacts are not synced',
    ['tiny launch', 1],
    [FILE, 'makeFolder(disk, path); disk.syncFolder(folderOf(path));', 'makeFolder(disk, path);'],
  ),
  // —— artifacts ——
  mutant(
    'N8: an artifact is not synced',
    ['tiny launch', 1],
    [
      'launch/artifacts.js',
      'await writeNewFile(this.#disk, pendingPath(path, sha256), bytes);',
      'const file = this.#disk.open(pendingPath(path, sha256), "create"); file.write(bytes, 0); file.close();',
    ],
  ),
  mutant(
    'N8: the name of a pending artifact is not synced',
    ['tiny launch', 2],
    ['launch/artifacts.js', 'this.#disk.syncFolder(folderOf(path));', ''],
  ),
  mutant(
    'N8: an artifact is overwritten in place',
    ['small launch', 2],
    [
      'launch/artifacts.js',
      'await writeNewFile(this.#disk, pendingPath(path, sha256), bytes);',
      'await writeNewFile(this.#disk, path, bytes);',
    ],
  ),
  mutant(
    'N8: the place of an artifact is not synced',
    ['tiny launch', 1],
    [FILE, 'disk.syncFolder(folderOf(to)); return true;', 'return true;'],
  ),
  mutant(
    'N8: an artifact takes its place before its event',
    ['small launch', 1],
    [
      'launch/artifacts.js',
      'await this.#writePending(path, sha256, bytes);',
      'await this.#writePending(path, sha256, bytes); renameIfThere(this.#disk, pendingPath(path, sha256), path);',
    ],
  ),
  mutant(
    'N8: pending artifacts are not put into their place',
    ['tiny launch', 6],
    [
      'launch/artifacts.js',
      'recover() { for (const { path, sha256 } of this.#journal.state.artifacts) {',
      'recover() { for (const { path, sha256 } of []) {',
    ],
  ),
  mutant(
    'N8: artifacts that a killed process left are not synced',
    ['tiny launch', 1],
    ['launch/artifacts.js', 'this.#disk.syncFolder(folder);', ''],
  ),
  mutant(
    'N8: two writers of one artifact do not wait for each other',
    ['small launch', 6],
    ['launch/artifacts.js', '(this.#underWay.get(path) ?? Promise.resolve()).then(work, work)', 'work()'],
  ),
  // —— the order of event, snapshot and telemetry ——
  mutant(
    'N5: the snapshot is written before its event is durable',
    ['tiny launch', 1],
    [
      'launch/journal.js',
      'const written = log.append(line);',
      'const written = (snapshot === undefined ? Promise.resolve() : writeSnapshot(snapshot)).then(() => log.append(line));',
    ],
  ),
  mutant(
    'N5: nobody waits for the snapshot',
    ['tiny launch', 1],
    ['launch/journal.js', 'await writeSnapshot(snapshot);', 'void writeSnapshot(snapshot);'],
  ),
  mutant(
    'N7: a replay seals lines that are not durable',
    ['tiny launch', 3],
    ['launch/launches.js', 'await syncLog(disk, options); await writeSnapshot', 'await writeSnapshot'],
  ),
  mutant(
    'N11: a record that can be sent later leaves the outbox',
    ['outbox', 1],
    [
      'telemetry/client.js',
      "if (answer.kind === 'accepted') { await",
      "if (answer.kind !== 'never') { await",
    ],
  ),
  mutant(
    'N11: a record that the service refuses is not among the dead',
    ['outbox', 1],
    ['telemetry/outbox.js', 'await this.#writeDead(line.text, death);', ''],
  ),
  // —— what telemetry was told ——
  mutant(
    'N10: a flush tells of an end that is not durable',
    ['ending launch', 1],
    ['launch/flush-telemetry.js', 'await syncLog(disk, place);', ''],
  ),
  mutant(
    'N10: who resumes a run tells of an end that is not durable',
    ['ending launch', 2_963_954_777],
    ['launch/launches.js', 'await syncLog(disk, options); const found', 'const found'],
  ),
  mutant(
    'N10: a log that a killed process left is not synced',
    ['ending launch', 1],
    ['launch/log-file.js', 'await file.syncLater();', ''],
  ),
  mutant(
    'N10: no file says how far telemetry was told',
    ['ending launch', 1],
    [
      'telemetry/told.js',
      'if (JSON.stringify(before) !== JSON.stringify(this.#told)) await this.#write();',
      '',
    ],
  ),
  mutant(
    'N10: how far telemetry was told is not synced',
    ['ending launch', 1],
    [FILE, 'await file.syncLater();', 'if (name !== "telemetry_told.json.tmp") await file.syncLater();'],
  ),
  mutant(
    'N10: the name of the file that says how far telemetry was told is not synced',
    ['small launch', 8],
    [
      FILE,
      'disk.syncFolder(folderOf(name)); }',
      'if (name !== "telemetry_told.json") disk.syncFolder(folderOf(name)); }',
    ],
  ),
  mutant(
    'N10: how far telemetry was told is overwritten in place',
    ['small launch', 8],
    [
      'telemetry/told.js',
      'import { readFile, removeIfThere, replaceFile }',
      'import { readFile, removeIfThere, writeNewFile as replaceFile }',
    ],
  ),
  mutant(
    'N10: the end counts as told before it was sent',
    ['ending launch', 1],
    [
      'launch/telemetry-feed.js',
      'else await this.#end;',
      'else { await this.#told.remove(); await this.#end; }',
    ],
  ),
  mutant(
    'N10: the end of a run has the time at which it was told',
    ['ending launch', 1],
    ['telemetry/launch-telemetry.js', 'end.endedAt ?? now', 'now'],
  ),
  // —— what the log says, and how it is read ——
  mutant(
    'N3: a ts goes back',
    ['tiny launch', 1],
    [
      'launch/journal.js',
      "Math.max(Math.floor(clock()), parseRfc3339(this.#last.ts, { offset: 'any' }))",
      'Math.floor(clock())',
    ],
  ),
  mutant(
    'N3: a ts that goes back is not noticed',
    ['tiny launch', 1],
    ['launch/chain.js', 'if (time < last)', 'if (false)'],
  ),
  mutant(
    'N3: a resumed run has another trace id',
    ['tiny launch', 1],
    ['launch/journal.js', 'this.#traceId = events[0].trace_id;', ''],
  ),
  mutant(
    'N3: mixed trace ids are not noticed',
    ['tiny launch', 1],
    ['launch/chain.js', 'checkTraces(events);', ''],
  ),
  mutant(
    'ND3: a missing line is not noticed',
    ['tiny launch', 1],
    ['launch/chain.js', "if (event.prev_hash !== (before?.event_hash ?? ''))", 'if (false)'],
  ),
  mutant(
    'ND3: a changed line is not noticed',
    ['tiny launch', 1],
    ['launch/chain.js', 'event.event_hash !== eventHash(event)', 'false'],
  ),
  mutant(
    'N9: a forced replay keeps old sections',
    ['small launch', 2],
    [
      'launch/apply-event.js',
      'section_states: {}, memory: { launch, launchVersion,',
      'memory: { launch, launchVersion,',
    ],
  ),
  mutant(
    'N9: a forced replay keeps old issues',
    ['small launch', 2],
    [
      'launch/apply-event.js',
      'paused: false, issues: [], gates: [], section_states: {}, memory',
      'paused: false, gates: [], section_states: {}, memory',
    ],
  ),
  mutant(
    'N9: a forced replay keeps old gates',
    ['small launch', 2],
    ['launch/apply-event.js', 'gates: [], section_states: {}, memory', 'section_states: {}, memory'],
  ),
  mutant(
    'N8: finished work is run again',
    ['tiny launch', 1],
    ['launch/worker-runs.js', 'if (done !== undefined) return done.value;', ''],
  ),
  mutant(
    'N9: a forced replay takes finished work for done',
    ['small launch', 2],
    ['launch/apply-event.js', 'firstItem: state.work_items.length', 'firstItem: state.memory.firstItem'],
  ),
]
