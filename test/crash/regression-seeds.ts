/**
 * The seeds of programs that once found a bug in the engine, with a description of the bug. They always run before the
 * random programs. When the workloads change, a seed may give another program, which is still as useful as a random
 * one.
 */
export const CRASH_SEEDS: readonly (readonly [seed: number, bug: string])[] = [
  [
    596715197,
    'a segment that was prepared during a rotation was used, below where the manifest says the log begins',
  ],
  [4173047984, 'a new store whose first segment had not arrived by name could not be opened'],
  [828129958, 'commits held back during a checkpoint that a caller had asked for were never released'],
  [2054322354, 'what the directory freed while it was written was forgotten at the next opening'],
]

/** Some have a share of the faults to try, because the usual share is not enough to find the bug again. */
export const FAULT_SEEDS: readonly (readonly [seed: number, bug: string, share?: number])[] = [
  [2693262067, 'a checkpoint that waited for one whose sync failed synced the same file again'],
  [3966987260, 'after a failed sync, what the system had forgotten was called corrupt'],
  [1856676659, 'a node whose first write failed was counted as freed where it had never been'],
  [
    2568121930,
    'a first commit that was never on the device made the store look as if it had lost its manifest',
  ],
  [1554814934, 'a manifest that was not on the device by name was never brought there'],
  [
    4232475820,
    'the manifest said that the log begins at a prepared segment, though a later one had come before it',
  ],
  [1216686807, 'half of a manifest of an earlier process became whole by half of a new one'],
  [
    3803175039,
    'a sync of the manifest failed only after a commit was taken, which is no reason to refuse that',
  ],
  [
    2413183741,
    'a manifest that somebody had failed to replace came back from the device, and its blocks were overwritten',
    0.1,
  ],
]

export const FULL_DISK_SEEDS: readonly (readonly [seed: number, bug: string])[] = [
  [
    3365688857,
    'on a full disk the log could not be ended where it was cut back, which made the handle read-only',
  ],
  [3536477480, 'a manifest with a header and nothing but zeros behind it was taken for a sound one'],
  [
    3092669330,
    'a file that a failed checkpoint had written, and the next one freed, went although a snapshot read it',
  ],
]
