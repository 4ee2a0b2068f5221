import type { Command } from 'commander'
import { addBench } from './bench.ts'
import type { Context } from './command.ts'
import { addCompletion } from './completion.ts'
import { addDoctor } from './doctor.ts'
import { addEvents } from './events.ts'
import { addExport } from './export.ts'
import { addImport } from './import.ts'
import { addReplay } from './replay.ts'
import { addRuns } from './runs.ts'
import { addShow } from './show.ts'
import { addSnapshot } from './snapshot.ts'
import { addTelemetry } from './telemetry.ts'
import { addTraces } from './traces.ts'
import { addVerify } from './verify.ts'
import { addVerifyBundle } from './verify-bundle.ts'

/** In the order of the help. */
export const COMMANDS: readonly ((program: Command, context: Context) => void)[] = [
  addRuns,
  addShow,
  addEvents,
  addVerify,
  addReplay,
  addSnapshot,
  addTraces,
  addExport,
  addImport,
  addVerifyBundle,
  addDoctor,
  addBench,
  addTelemetry,
  addCompletion,
]
