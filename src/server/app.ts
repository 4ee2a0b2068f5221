import { OpenAPIHono } from '@hono/zod-openapi'
import type { Annals } from '../annals.ts'
import { guard } from './guard.ts'
import { serveMonitoring } from './monitoring-routes.ts'
import { type ServerOptions, settingsOf } from './options.ts'
import { refusal } from './refusal.ts'
import type { ServerEnv } from './server-env.ts'
import { Services } from './services.ts'
import { unmatched } from './unmatched.ts'

/** All routes of a server, as `(Request) => Promise<Response>`. */
export function createApp(db: Annals, options: ServerOptions = {}): OpenAPIHono<ServerEnv> {
  return appOver(new Services(db, settingsOf(options)))
}

export function appOver(services: Services): OpenAPIHono<ServerEnv> {
  const app = new OpenAPIHono<ServerEnv>()
  app.use(guard(services))
  app.onError((error, c) => refusal(c, error))
  app.notFound(c => refusal(c, unmatched(app, c)))
  serveMonitoring(app, services)
  for (const routes of services.settings.routes) app.route('/', routes)
  return app
}
