import { invalidArgument } from './core/errors.ts'
import { checkFlag, checkFunction, checkOptions } from './core/options.ts'
import type { Capabilities, Durability } from './engine/capabilities.ts'
import { tenantShared } from './engine/keys.ts'
import type { Storage } from './engine/storage.ts'
import type { LedgerAlert } from './ledger/run-events.ts'
import type { Guard } from './primitives/machine-definition.ts'

/** The options of a store on any engine. */
export interface OpenOnOptions {
  /** The tenant whose data the handle reaches; `default` by default. */
  readonly tenant?: string
  /** Checks everything stored before the store is opened: every hash chain, and what the engine can check itself. */
  readonly verifyOnOpen?: boolean
  /** The guards that state machines name in their transitions. They must be pure and synchronous. */
  readonly guards?: Readonly<Record<string, Guard>>
  /** How the ledger treats events that no transition allows. */
  readonly ledger?: LedgerOptions
}

/** The options of a store in a folder or in memory. */
export interface OpenOptions extends OpenOnOptions {
  /** The store's folder, which is created if missing. */
  readonly path?: string
  /** Keeps everything in memory and nothing on disk, for tests and for data that may be lost. */
  readonly memory?: boolean
  /** What an acknowledged commit survives: a power cut (`durable`, the default), or the death of the process (`relaxed`). */
  readonly durability?: Durability
  /** Creates no folder and refuses every write with `READ_ONLY`. */
  readonly readOnly?: boolean
  /** The size of the cache for data from disk, in bytes; 64 MiB by default. */
  readonly cacheBytes?: number
}

/** How the ledger treats events that no transition allows. */
export interface LedgerOptions {
  /** Refuses an event that no transition allows with `INVALID_TRANSITION`, instead of storing it and raising an alert. */
  readonly validateTransitions?: boolean
  /**
   * Called once for each alert that is raised while the store is open, by this process or another one, in order. It is not
   * called for earlier alerts, nor in a read-only store. An error that it throws becomes a process warning. To miss no alert
   * across restarts, use `subscribeAlerts` and keep its cursor.
   */
  readonly onAlert?: (alert: LedgerAlert) => unknown
}

const OPEN_ON_OPTIONS: readonly string[] = ['tenant', 'verifyOnOpen', 'guards', 'ledger']
const OPEN_OPTIONS: readonly string[] = [
  'path',
  'memory',
  'durability',
  'readOnly',
  'cacheBytes',
  ...OPEN_ON_OPTIONS,
]

/** Refuses invalid options of `open`, and returns the others unchanged. */
export function checkOpenOptions(options: OpenOptions): OpenOptions {
  checkOptions('open', options, OPEN_OPTIONS)
  const { path, memory, durability, cacheBytes } = options
  for (const name of ['memory', 'readOnly'] as const) checkFlag(name, options[name])
  if (memory === true && path !== undefined)
    throw invalidArgument('path', 'must be absent with memory: true', path)
  if (memory !== true && path === undefined)
    throw invalidArgument('path', 'is missing: pass the path of a folder, or memory: true', path)
  if (durability !== undefined && durability !== 'durable' && durability !== 'relaxed') {
    throw invalidArgument('durability', "must be 'durable' or 'relaxed'", durability)
  }
  if (cacheBytes !== undefined && !(Number.isSafeInteger(cacheBytes) && cacheBytes >= 0)) {
    throw invalidArgument('cacheBytes', 'must be a whole number, 0 or more', cacheBytes)
  }
  checkShared(options)
  return options
}

/** Refuses invalid options of `openOn`, and returns the others unchanged. */
export function checkOpenOnOptions(options: OpenOnOptions): OpenOnOptions {
  checkOptions('openOn', options, OPEN_ON_OPTIONS)
  checkShared(options)
  return options
}

type PortMethod = Exclude<keyof Storage, keyof Capabilities>

/** Its type makes the compiler refuse a table that lacks a method of the port. */
const PORT_METHODS: Readonly<Record<PortMethod, true>> = {
  get: true,
  scan: true,
  snapshot: true,
  commit: true,
  update: true,
  subscribe: true,
  scopes: true,
  now: true,
  clock: true,
  close: true,
}
/** The methods that every engine must have. */
export const STORAGE_METHODS: readonly PortMethod[] = Object.keys(PORT_METHODS) as PortMethod[]

/** Refuses an engine that lacks a method of the port. Otherwise a call much later would fail with a `TypeError`. */
export function checkStorage(storage: Storage): void {
  if (typeof storage !== 'object' || storage === null) throw invalidArgument('storage', 'must be an engine')
  for (const name of STORAGE_METHODS) checkFunction(`storage.${name}`, storage[name])
}

function checkShared({ tenant, verifyOnOpen, guards = {}, ledger = {} }: OpenOnOptions): void {
  checkFlag('verifyOnOpen', verifyOnOpen)
  checkGuards(guards)
  checkLedgerOptions(ledger)
  if (tenant !== undefined) tenantShared({ tenant })
}

function checkLedgerOptions(options: LedgerOptions): void {
  checkOptions('ledger', options, ['validateTransitions', 'onAlert'])
  const { validateTransitions, onAlert } = options
  checkFlag('ledger.validateTransitions', validateTransitions)
  if (onAlert !== undefined) checkFunction('ledger.onAlert', onAlert)
}

function checkGuards(guards: unknown): void {
  if (typeof guards !== 'object' || guards === null)
    throw invalidArgument('guards', 'must be an object', guards)
  for (const [name, guard] of Object.entries(guards)) checkFunction(`the guard ${name}`, guard)
}
