import { AnnalsError } from '../core/errors.ts'

/**
 * Refuses events that JSON cannot represent, as the ledger does. `JSON.stringify` would leave such values out or change them. The
 * server reports all other errors.
 */
export function checkEventJson(event: unknown, index?: number): unknown {
  if (typeof event !== 'object' || event === null || Array.isArray(event)) return event ?? null
  for (const [field, value] of Object.entries(event)) {
    if (value === undefined) continue
    const path = pathOfFault(value, '$', 0)
    if (path === undefined) continue
    const where = index === undefined ? '' : `event ${index}: `
    throw new AnnalsError(
      'INVALID_ENVELOPE',
      `${where}${field} has a value that JSON cannot represent, at ${path}`,
      {
        field,
        path,
        ...(index === undefined ? {} : { index }),
      },
    )
  }
  return event
}

/** The server refuses deeper nesting. Cycles end here too. */
const DEPTH_MAX = 64

function pathOfFault(value: unknown, path: string, depth: number): string | undefined {
  switch (typeof value) {
    case 'string':
    case 'boolean':
      return undefined
    case 'number':
      return Number.isFinite(value) ? undefined : path
    case 'object':
      if (value === null) return undefined
      return depth >= DEPTH_MAX ? path : faultIn(value, path, depth)
    default:
      return path
  }
}

function faultIn(container: object, path: string, depth: number): string | undefined {
  if (Array.isArray(container)) {
    // Not `forEach`, which skips holes.
    for (let i = 0; i < container.length; i++) {
      const fault = pathOfFault(container[i], `${path}[${i}]`, depth + 1)
      if (fault !== undefined) return fault
    }
    return undefined
  }
  const prototype: unknown = Object.getPrototypeOf(container)
  // A date, a map or bytes would not be read back as such.
  if (prototype !== null && Object.getPrototypeOf(prototype) !== null) return path
  if (typeof (container as { toJSON?: unknown }).toJSON === 'function') return path
  for (const [key, value] of Object.entries(container)) {
    const fault = pathOfFault(value, `${path}.${key.slice(0, 64)}`, depth + 1)
    if (fault !== undefined) return fault
  }
  return undefined
}
