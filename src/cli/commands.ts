import type { Command } from 'commander'
import { addBench } from './bench.ts'
import type { Context } from './command.ts'
import { addCompletion } from './completion.ts'
import { addDemo } from './demo.ts'
import { addDemoWorker } from './demo-worker.ts'
import { addDoctor } from './doctor.ts'
import { addEvents } from './events.ts'
import { addExport } from './export.ts'
import { addImport } from './import.ts'
import { addReplay } from './replay.ts'
import { addResume } from './resume.ts'
import { addRuns } from './runs.ts'
import { addServe } from './serve.ts'
import { addShow } from './show.ts'
import { addSnapshot } from './snapshot.ts'
import { addTelemetry } from './telemetry.ts'
import { addToken } from './token.ts'
import { addTraces } from './traces.ts'
import { addVerify } from './verify.ts'
import { addVerifyBundle } from './verify-bundle.ts'

/** All commands, in the order in which the help lists them. */
export const COMMANDS: readonly ((program: Command, context: Context) => void)[] = [
  addServe,
  addDemo,
  addRuns,
  addShow,
  addEvents,
  addVerify,
  addReplay,
  addResume,
  addSnapshot,
  addTraces,
  addExport,
  addImport,
  addVerifyBundle,
  addToken,
  addDoctor,
  addBench,
  addTelemetry,
  addCompletion,
  addDemoWorker,
]
