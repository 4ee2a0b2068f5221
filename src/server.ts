export type { ErrorCode } from './core/errors.ts'
export { createApp } from './server/app.ts'
export {
  createLaunchRegistry,
  type LaunchPage,
  type LaunchRegistry,
  type LaunchRegistryOptions,
} from './server/launch-registry.ts'
export type { ServerOptions } from './server/options.ts'
export type { Problem } from './server/problem.ts'
export { createServer, Server, type ServerAddress } from './server/server.ts'
export type { Credential, ServerEnv } from './server/server-env.ts'
export { type Environment, telemetrySettings } from './server/telemetry-settings.ts'
export {
  type CreatedToken,
  type CreateTokenOptions,
  type Role,
  type TokenRecord,
  TokenStore,
} from './server/tokens.ts'
