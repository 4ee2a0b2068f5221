/** The events of a campaign, counted. */
export interface Counts {
  programs: number
  steps: number
  calls: number
  refusals: number
  transactions: number
  conflicts: number
  processCrashes: number
  powerCuts: number
  reopenings: number
  /** Calls that were pending in a crash and got no answer. */
  unanswered: number
  comparisons: number
}

export function newCounts(): Counts {
  return {
    programs: 0,
    steps: 0,
    calls: 0,
    refusals: 0,
    transactions: 0,
    conflicts: 0,
    processCrashes: 0,
    powerCuts: 0,
    reopenings: 0,
    unanswered: 0,
    comparisons: 0,
  }
}
