import { randomUUID } from 'node:crypto'
import { deriveIdempotencyKey } from '../../src/index.ts'
import type { Random } from '../../src/testing/random.ts'

/** Generates requests from an OpenAPI description. Most have one fault, some have many. */

interface JsonSchema {
  readonly $ref?: string
  readonly type?: string | readonly string[]
  readonly properties?: Readonly<Record<string, JsonSchema>>
  readonly required?: readonly string[]
  readonly items?: JsonSchema
  readonly enum?: readonly unknown[]
  readonly const?: unknown
  readonly pattern?: string
  readonly minimum?: number
  readonly maximum?: number
  readonly anyOf?: readonly JsonSchema[]
}

interface Parameter {
  readonly name: string
  readonly in: 'path' | 'query' | 'header'
  readonly required?: boolean
  readonly schema: JsonSchema
}

interface Operation {
  readonly operationId: string
  readonly parameters?: readonly Parameter[]
  readonly responses: Readonly<Record<string, unknown>>
  readonly requestBody?: { readonly content: Readonly<Record<string, { readonly schema: JsonSchema }>> }
}

export interface ApiDescription {
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>
  readonly components: { readonly schemas: Readonly<Record<string, JsonSchema>> }
}

const IDS = [
  'run-1',
  'run-2',
  'key',
  'cell',
  'trace',
  'a/b',
  '..',
  '~',
  '~:default:a:b:run-1',
  '~:',
  'ä',
  'x'.repeat(300),
  '\u0000',
  '%',
]
const TEXTS = [
  ...IDS,
  '',
  'null',
  '-1',
  '0',
  '1',
  '1e400',
  '9007199254740993',
  '2025-06-15T15:06:40.000Z',
  '2025-02-30T00:00:00Z',
  'Active',
  'true',
  '\ud800',
  "'; DROP TABLE runs; --",
  '<script>alert(1)</script>',
  '../../etc/passwd',
  '{{7*7}}',
]
/** No short lifetimes. The store removes expired entries later, which would look like a change by another request. */
const TTLS = ['86400000', '0', '-1', 'x', '']
const NUMBERS = [0, 1, -1, 0.5, 2 ** 53, -(2 ** 53), 1e308, 1_000, 65_536]

export class ApiRequests {
  readonly #operations: readonly (readonly [path: string, method: string, Operation])[]
  readonly #schemas: ApiDescription['components']['schemas']
  readonly #random: Random

  constructor({ paths, components }: ApiDescription, random: Random) {
    this.#operations = Object.entries(paths).flatMap(([path, methods]) =>
      Object.entries(methods).map(([method, operation]) => [path, method, operation] as const),
    )
    this.#schemas = components.schemas
    this.#random = random
  }

  get count(): number {
    return this.#operations.length
  }

  /** The next request. `isAstray` if it may reach another route or none. */
  next(): {
    readonly name: string
    readonly request: Request
    readonly documented: readonly string[]
    readonly isAstray: boolean
  } {
    const random = this.#random
    const [template, method, operation] = random.pick(this.#operations)
    const { parameters = [], requestBody } = operation
    let path = template
    const search = new URLSearchParams()
    const headers = new Headers()
    for (const parameter of parameters) {
      if (parameter.in === 'path') path = path.replace(`{${parameter.name}}`, this.#segment())
      else if (parameter.required === true || random.chance(0.3)) this.#parameter(parameter, search, headers)
    }
    if (random.chance(0.02)) search.append(random.pick(TEXTS), random.pick(TEXTS))
    const own = path
    if (random.chance(0.02)) path += random.pick(['/', '/x', '//', '%2f..', '/..'])
    if (random.chance(0.03))
      headers.set('Authorization', random.pick(['Bearer x', 'Basic eA==', 'Bearer', 'x, y']))
    if (random.chance(0.02)) headers.set('Host', random.pick(['evil.example', 'localhost:1', '']))
    if (random.chance(0.02)) headers.set('Origin', random.pick(['https://evil.example', 'null']))
    const verb = random.chance(0.03)
      ? random.pick(['GET', 'POST', 'PUT', 'DELETE', 'PATCH', 'OPTIONS'])
      : method.toUpperCase()
    const hasBody = verb !== 'GET' && (requestBody !== undefined || random.chance(0.05))
    const body = hasBody ? this.#body(requestBody, headers) : undefined
    const query = search.size > 0 ? `?${search}` : ''
    const request = new Request(`http://localhost${path}${query}`, {
      method: verb,
      headers,
      ...(body === undefined ? {} : { body }),
    })
    return {
      name: operation.operationId,
      request,
      documented: Object.keys(operation.responses),
      isAstray: verb !== method.toUpperCase() || new URL(request.url).pathname !== own,
    }
  }

  #segment(): string {
    const random = this.#random
    if (random.chance(0.05)) return random.pick(['%', '%zz', '%ff%fe', '%00', '..%2f..', '%2e%2e'])
    const id = random.chance(0.7) ? random.pick(IDS.slice(0, 5)) : random.pick(IDS)
    return encodeURIComponent(id)
  }

  #parameter({ name, in: where, schema }: Parameter, search: URLSearchParams, headers: Headers): void {
    const value = String(
      name === 'ttlMs'
        ? this.#random.pick(TTLS)
        : this.#random.chance(0.7)
          ? this.#like(schema, 0)
          : this.#random.pick(TEXTS),
    )
    if (where === 'query') search.append(name, value.toWellFormed())
    else headers.set(name, value.replaceAll(/[^\x20-\x7e]/g, '?').trim())
  }

  #body(described: Operation['requestBody'], headers: Headers): string | Uint8Array {
    const random = this.#random
    const [type, { schema }] = random.pick(
      Object.entries(described?.content ?? { 'application/json': { schema: {} } }),
    )
    headers.set(
      'Content-Type',
      random.chance(0.95) ? type : random.pick(['text/plain', '', 'application/json;x=1']),
    )
    if (random.chance(0.05)) return Buffer.from(random.bytes(random.below(64)), 'latin1')
    if (random.chance(0.02)) return `${'['.repeat(random.below(200))}${'{"a":'.repeat(random.below(100))}`
    const value = this.#isEvent(schema) && random.chance(0.5) ? this.#event() : this.#like(schema, 0)
    const text = JSON.stringify(value) ?? 'null'
    return random.chance(0.05) ? text.slice(0, random.below(text.length + 1)) : text
  }

  #isEvent({ $ref = '' }: JsonSchema): boolean {
    return $ref.endsWith('/RunEvent')
  }

  /** An event with one invalid field, or an arbitrary value. */
  #event(): unknown {
    const random = this.#random
    const event = {
      eventId: randomUUID(),
      eventType: random.pick(['RunStarted', 'RunCompleted', 'Noted']),
      emittedAt: '2025-06-15T15:06:40.000Z',
      runId: random.pick(['run-1', 'run-2']),
      tenantId: 'acme',
      projectId: 'shop',
      environmentId: 'test',
      planId: 'plan',
      planVersion: '1',
      engineAttemptId: 1,
      logicalAttemptId: 1 + random.below(5),
    }
    const whole: Record<string, unknown> = { ...event, idempotencyKey: deriveIdempotencyKey(event) }
    if (random.chance(0.6)) whole[random.pick(Object.keys(whole))] = this.#any(0)
    return whole
  }

  #like(schema: JsonSchema, depth: number): unknown {
    const random = this.#random
    const { $ref, enum: values, anyOf, const: constant } = schema
    if (random.chance(0.08)) return this.#any(depth)
    if ($ref !== undefined)
      return this.#like(this.#schemas[$ref.slice($ref.lastIndexOf('/') + 1)] ?? {}, depth)
    if (constant !== undefined) return constant
    if (values !== undefined) return random.pick(values)
    if (anyOf !== undefined) return this.#like(random.pick(anyOf), depth)
    switch (Array.isArray(schema.type) ? random.pick(schema.type) : schema.type) {
      case 'object':
        return this.#object(schema, depth)
      case 'array':
        return Array.from({ length: random.below(4) }, () => this.#like(schema.items ?? {}, depth + 1))
      case 'string':
        return random.pick(TEXTS)
      case 'integer':
      case 'number':
        return random.chance(0.6) ? random.below(20) : random.pick(NUMBERS)
      case 'boolean':
        return random.chance(0.5)
      default:
        return this.#any(depth)
    }
  }

  #object({ properties = {}, required = [] }: JsonSchema, depth: number): unknown {
    const random = this.#random
    const value: Record<string, unknown> = {}
    for (const [name, schema] of Object.entries(properties)) {
      const isGiven = required.includes(name) ? !random.chance(0.05) : random.chance(0.4)
      if (isGiven) value[name] = this.#like(schema, depth + 1)
    }
    if (random.chance(0.05)) value[random.pick(TEXTS)] = this.#any(depth + 1)
    return value
  }

  #any(depth: number): unknown {
    const random = this.#random
    switch (random.below(depth > 4 ? 5 : 7)) {
      case 0:
        return null
      case 1:
        return random.chance(0.5)
      case 2:
        return random.pick(NUMBERS)
      case 3:
        return random.pick(TEXTS)
      case 4:
        return `\u0000${random.pick(['s', 'i', 'b', 'n', 'x', ''])}${random.pick(TEXTS)}`
      case 5:
        return Array.from({ length: random.below(4) }, () => this.#any(depth + 1))
      default:
        return { [random.pick([...IDS, '__proto__', 'constructor'])]: this.#any(depth + 1) }
    }
  }
}
