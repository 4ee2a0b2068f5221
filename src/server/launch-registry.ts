import { readdir } from 'node:fs/promises'
import type { Launch, LaunchOptions, LaunchSnapshot } from 'annals/launch'
import { AnnalsError } from '../core/errors.ts'
import { DOCS_STATES } from '../launch/docs/pipeline.ts'
import { cancelLaunch, resumeLaunch } from '../launch/launches.ts'
import { snapshotAt } from '../launch/replay.ts'
import { lookAtRun, readFirstLine } from '../launch/run-files.ts'
import type { StateModel } from '../launch/states.ts'

/** A range of the list of launches. */
export interface LaunchPage {
  /** The most ids to return; default: all. */
  readonly limit?: number
  /** Only ids after this one, exclusive. */
  readonly after?: string
}

/** The launches that a server can read, resume and cancel. */
export interface LaunchRegistry {
  /** The ids of launches in alphabetical order. */
  list(page?: LaunchPage): Promise<readonly string[]>
  /** The state of a launch, from its log. `RUN_NOT_FOUND` if there is no such launch. */
  state(runId: string): Promise<LaunchSnapshot>
  /** Resumes a launch. `LAUNCH_UNKNOWN` if its definition is not registered. */
  resume(runId: string, options?: { readonly force?: boolean }): Promise<void>
  /** Cancels a launch. */
  cancel(runId: string, options?: { readonly reason?: string }): Promise<void>
}

/** Options of `createLaunchRegistry`. */
export interface LaunchRegistryOptions extends LaunchOptions {
  /** The definitions of launches that can be resumed. */
  readonly definitions?: readonly Launch[]
}

/** A registry of the launches in a folder, for the server option `launches`. */
export function createLaunchRegistry(options: LaunchRegistryOptions): LaunchRegistry {
  const { definitions = [], ...common } = options
  const byName = new Map(definitions.map(launch => [launch.name, launch]))
  const nameOf = async (runId: string): Promise<string | undefined> =>
    launchIn(await readFirstLine(runId, common))
  const statesOf = async (runId: string): Promise<StateModel> =>
    byName.get((await nameOf(runId)) ?? '')?.states ?? DOCS_STATES
  return {
    async list({ limit = Number.POSITIVE_INFINITY, after = '' } = {}) {
      const entries = await readdir(common.runsFolder, { withFileTypes: true }).catch(noneIfMissing)
      const names = entries.filter(entry => entry.isDirectory()).map(({ name }) => name)
      const found: string[] = []
      for (const name of names.filter(name => RUN_ID.test(name) && name > after).sort()) {
        if (found.length >= limit) break
        // A folder without events is not a launch yet.
        if ((await nameOf(name)) !== undefined) found.push(name)
      }
      return found
    },
    async state(runId) {
      return snapshotAt((await lookAtRun(runId, common, await statesOf(runId))).replayed)
    },
    async resume(runId, { force = false } = {}) {
      const name = (await nameOf(runId)) ?? ''
      const launch = byName.get(name)
      if (launch === undefined) {
        const message = `this server does not have the launch ${JSON.stringify(name)}: start it with the module of the launch, or resume the run where its code is`
        throw new AnnalsError('LAUNCH_UNKNOWN', message, { runId, launch: name, known: [...byName.keys()] })
      }
      const run = await resumeLaunch(launch, runId, { ...common, force })
      // The result is in the log of the launch; no caller waits for it.
      run.result.catch((error: unknown) => common.warn?.(`run ${runId} failed: ${String(error)}`))
    },
    async cancel(runId, { reason } = {}) {
      const states = await statesOf(runId)
      await cancelLaunch(runId, { ...common, states, ...(reason === undefined ? {} : { reason }) })
    },
  }
}

const RUN_ID = /^[A-Za-z0-9._-]{1,128}$/

function launchIn(line: string | undefined): string | undefined {
  if (line === undefined) return undefined
  try {
    const { payload } = JSON.parse(line) as { payload?: { launch?: unknown } }
    return typeof payload?.launch === 'string' ? payload.launch : undefined
  } catch (error) {
    // Reading the log reports what is wrong with it.
    if (error instanceof SyntaxError) return undefined
    throw error
  }
}

function noneIfMissing(error: NodeJS.ErrnoException): [] {
  if (error.code === 'ENOENT') return []
  throw error
}
