export {
  LaunchesClient,
  type LaunchStanding,
  type NewToken,
  type Token,
  type TokenRole,
  TokensClient,
} from './client/administration-client.ts'
export { AnnalsClient, createClient, type StoreIdentity } from './client/client.ts'
export { LedgerClient } from './client/ledger-client.ts'
export { RunsClient } from './client/runs-client.ts'
export { EventsClient, TracesClient } from './client/traces-client.ts'
export type { ClientOptions, ProblemCause } from './client/transport.ts'
export { CellsClient, KvClient } from './client/values-client.ts'
export { AnnalsError, type ErrorCode, type ErrorDetails } from './core/errors.ts'
