import { AnnalsError } from '../core/errors.ts'
import { checkEnvelope, type Envelope } from './envelope.ts'

const TENANT_OF_ALL = 'default'

/** Checks an event that a handle of this tenant was given; `index` is its place in a batch, for the error. */
export function acceptEvent(event: unknown, tenant: string, index?: number): Envelope {
  try {
    const envelope = checkEnvelope(event)
    checkTenant(envelope, tenant)
    return envelope
  } catch (error) {
    if (index === undefined || !(error instanceof AnnalsError)) throw error
    throw new AnnalsError(error.code, `event ${index}: ${error.message}`, { ...error.details, index })
  }
}

/** LD8: a tenant's handle accepts events of that tenant alone. The default handle treats the tenant as data. */
function checkTenant({ runId, tenantId }: Envelope, tenant: string): void {
  if (tenant === TENANT_OF_ALL || tenantId === tenant) return
  const message = `this handle takes events of tenant ${JSON.stringify(tenant)} alone`
  throw new AnnalsError('RUN_SCOPE_MISMATCH', message, { runId, field: 'tenantId' })
}
