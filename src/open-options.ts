import { invalidArgument } from './core/errors.ts'
import { checkFlag, checkFunction, checkOptions } from './core/options.ts'
import type { Durability } from './embedded/open.ts'
import { tenantShared } from './engine/keys.ts'
import type { LedgerAlert } from './ledger/run-events.ts'
import type { Guard } from './primitives/machine-definition.ts'

/** The options of `open`, and their check. */

export interface OpenOptions {
  /** The store's folder; it is made if it is missing. */
  readonly path?: string
  /** Nothing on disk: for tests, and for what may be lost. */
  readonly memory?: boolean
  /** What an answered commit survives: a power cut (`durable`, the default), or the death of the process. */
  readonly durability?: Durability
  /** Whose data this handle reaches; `default` without it. */
  readonly tenant?: string
  /** Creates no folder and refuses every write with `READ_ONLY`. */
  readonly readOnly?: boolean
  /** Reads and checks everything stored before anything is served. */
  readonly verifyOnOpen?: boolean
  /** Memory for data that could be read from disk again; 64 MiB without it. */
  readonly cacheBytes?: number
  /** Functions that the transitions of machines name. They must be pure and answer at once. */
  readonly guards?: Readonly<Record<string, Guard>>
  readonly ledger?: LedgerOptions
}

export interface LedgerOptions {
  /** Refuses an event that no transition allows, with `INVALID_TRANSITION`, instead of storing it and raising an alert. */
  readonly validateTransitions?: boolean
  /**
   * Called once for each alert that is raised while the store is open, by this process or another one, in order. It is not
   * called for earlier alerts, nor in a store that is only read. What it throws becomes a process warning. Whoever must not
   * miss an alert across restarts keeps the cursor of `subscribeAlerts`.
   */
  readonly onAlert?: (alert: LedgerAlert) => unknown
}

const OPTIONS: readonly string[] = [
  'path',
  'memory',
  'durability',
  'tenant',
  'readOnly',
  'verifyOnOpen',
  'cacheBytes',
  'guards',
  'ledger',
]

export function checkOpenOptions(options: OpenOptions): OpenOptions {
  checkOptions('open', options, OPTIONS)
  const { path, memory, durability, cacheBytes } = options
  for (const name of ['memory', 'readOnly', 'verifyOnOpen'] as const) checkFlag(name, options[name])
  if (memory === true && path !== undefined)
    throw invalidArgument('path', 'is of no use with memory: true', path)
  if (memory !== true && path === undefined)
    throw invalidArgument('path', 'is missing (or give memory: true)', path)
  if (durability !== undefined && durability !== 'durable' && durability !== 'relaxed') {
    throw invalidArgument('durability', "must be 'durable' or 'relaxed'", durability)
  }
  if (cacheBytes !== undefined && !(Number.isSafeInteger(cacheBytes) && cacheBytes >= 0)) {
    throw invalidArgument('cacheBytes', 'must be a whole number, 0 or more', cacheBytes)
  }
  checkGuards(options.guards ?? {})
  checkLedgerOptions(options.ledger ?? {})
  // Before the folder is opened: nobody would close it again.
  if (options.tenant !== undefined) tenantShared({ tenant: options.tenant })
  return options
}

export function checkLedgerOptions(options: LedgerOptions): void {
  checkOptions('ledger', options, ['validateTransitions', 'onAlert'])
  const { validateTransitions, onAlert } = options
  checkFlag('ledger.validateTransitions', validateTransitions)
  if (onAlert !== undefined) checkFunction('ledger.onAlert', onAlert)
}

export function checkGuards(guards: unknown): void {
  if (typeof guards !== 'object' || guards === null)
    throw invalidArgument('guards', 'must be an object', guards)
  for (const [name, guard] of Object.entries(guards)) checkFunction(`the guard ${name}`, guard)
}
