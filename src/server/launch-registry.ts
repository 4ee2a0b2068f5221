import { readdir } from 'node:fs/promises'
import type { Launch, LaunchOptions, LaunchSnapshot } from 'annals/launch'
import { AnnalsError } from '../core/errors.ts'
import { DOCS_STATES } from '../launch/docs/pipeline.ts'
import { cancelLaunch, resumeLaunch } from '../launch/launches.ts'
import { snapshotAt } from '../launch/replay.ts'
import { lookAtRun, readFirstLine } from '../launch/run-files.ts'
import type { StateModel } from '../launch/states.ts'

/** A part of a list. */
export interface LaunchPage {
  /** How many; all without it. */
  readonly limit?: number
  /** An id, exclusive. */
  readonly after?: string
}

/** What a server needs to know of launches. */
export interface LaunchRegistry {
  /** The ids of all runs, in the order of their names; or of so many from behind one on. */
  list(page?: LaunchPage): Promise<readonly string[]>
  /** How a run stands, from its log alone; `RUN_NOT_FOUND` if there is none. */
  state(runId: string): Promise<LaunchSnapshot>
  /** Goes on with a run; `LAUNCH_UNKNOWN` if its definition is not known here. */
  resume(runId: string, options?: { readonly force?: boolean }): Promise<void>
  cancel(runId: string, options?: { readonly reason?: string }): Promise<void>
}

export interface LaunchRegistryOptions extends LaunchOptions {
  /** The launches whose runs can be resumed. */
  readonly definitions?: readonly Launch[]
}

/** The runs in a folder, and the launches that they may be of. */
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
        // A folder is no run before its first event.
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
        const message = `this server has no definition of the launch ${JSON.stringify(name)}: resume the run where its code is`
        throw new AnnalsError('LAUNCH_UNKNOWN', message, { runId, launch: name, known: [...byName.keys()] })
      }
      const run = await resumeLaunch(launch, runId, { ...common, force })
      // How it ends is in its log; nobody waits for it here.
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
    // What is wrong with it, reading it as a log will say.
    if (error instanceof SyntaxError) return undefined
    throw error
  }
}

function noneIfMissing(error: NodeJS.ErrnoException): [] {
  if (error.code === 'ENOENT') return []
  throw error
}
