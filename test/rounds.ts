/**
 * The number of rounds of a campaign. `npm test` runs as many as prove the rule; `npm run test:soak`, which sets
 * `ANNALS_SOAK`, runs more of the same with other random choices.
 */
export function rounds(inTests: number, inSoak: number): number {
  return process.env['ANNALS_SOAK'] === '1' ? inSoak : inTests
}
