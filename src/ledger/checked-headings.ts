import type { ByteString } from '../core/bytes.ts'
import { canonicalJsonBytes } from '../core/canonical-json.ts'
import { checkField, quoted, refuse } from './fields.ts'
import type { RunHeading } from './run-events.ts'

/** The fields that all events of a run usually share, checked, with the texts that are made of them. */
export interface CheckedHeading extends RunHeading {
  /** The run id, plan id and plan version in UTF-8. */
  readonly run: ByteString
  readonly plan: ByteString
  readonly version: ByteString
  /** The heading as the run's first event stores it. */
  readonly stored: ByteString
  /** Parts of the record's JSON: the fields that stand next to each other in the order of names. */
  readonly environmentJson: ByteString
  readonly planToRunJson: ByteString
  readonly tenantJson: ByteString
}

const HEADINGS_MAX = 1_000
/** A longer heading is not kept, so that the cache can't take more than a few megabytes. */
const HEADING_BYTES_MAX = 1_024

/** Checks headings, and remembers those of recent runs: comparing six texts is cheaper than checking and writing them. */
export class CheckedHeadings {
  readonly #byRun = new Map<string, CheckedHeading>()

  /** Throws `INVALID_ENVELOPE` if a field is invalid. */
  check(
    runId: string,
    tenantId: string,
    projectId: string,
    environmentId: string,
    planId: string,
    planVersion: string,
  ): CheckedHeading {
    const known = this.#byRun.get(runId)
    const isKnown =
      known !== undefined &&
      known.tenantId === tenantId &&
      known.projectId === projectId &&
      known.environmentId === environmentId &&
      known.planId === planId &&
      known.planVersion === planVersion
    if (isKnown) return known
    const heading = checked({ runId, tenantId, projectId, environmentId, planId, planVersion })
    if (heading.stored.length <= HEADING_BYTES_MAX) {
      if (this.#byRun.size === HEADINGS_MAX) this.#byRun.clear()
      this.#byRun.set(runId, heading)
    }
    return heading
  }
}

function checked(heading: RunHeading): CheckedHeading {
  const { runId, tenantId, projectId, environmentId, planId, planVersion } = heading
  const run = checkField('runId', runId)
  if (run === '_shared') refuse('runId', 'is reserved')
  checkField('tenantId', tenantId)
  checkField('projectId', projectId)
  checkField('environmentId', environmentId)
  const plan = checkField('planId', planId)
  const version = checkField('planVersion', planVersion)
  return {
    ...heading,
    run,
    plan,
    version,
    stored: storedHeading(heading),
    environmentJson: `"environmentId":${quoted(environmentId)}`,
    planToRunJson:
      `"planId":${quoted(planId)},"planVersion":${quoted(planVersion)}` +
      `,"projectId":${quoted(projectId)},"runId":${quoted(runId)}`,
    tenantJson: `"tenantId":${quoted(tenantId)}`,
  }
}

/** The heading as it is stored beside a run, in canonical JSON. */
export function storedHeading(heading: RunHeading): ByteString {
  const { tenantId, projectId, environmentId, planId, planVersion } = heading
  return canonicalJsonBytes({ tenantId, projectId, environmentId, planId, planVersion })
}
