import { invariant } from '../core/invariant.ts'
import { type Fields, type JsonSchema, objectSchema, type Vocabulary } from '../core/schema.ts'
import { type SchemaProblem, schemaProblems } from '../core/schema-problems.ts'
import { DOCS_PAYLOADS, DOCS_RECORDS, DOCS_VALUES } from './docs/formats.ts'
import { PAYLOADS, RECORDS, VALUES } from './formats.ts'

/**
 * The JSON Schemas of a launch's files, made from their formats. Everything
 * that a launch writes or reads is validated against them.
 * `docs/contracts/*.schema.json` has the same schemas as files; `npm run
 * contracts` writes them.
 */

const idOf = (name: string): string => `urn:annals:launch:${name}:1`
const PAYLOADS_ID = idOf('event-payloads')
export const VALIDATION_REPORT_ID: string = idOf('validation-report')

const VOCABULARY: Vocabulary = {
  values: { ...VALUES, ...DOCS_VALUES },
  records: { ...RECORDS, ...DOCS_RECORDS },
  references: { issue: idOf('issue') },
}

const PAYLOAD_SCHEMAS: Readonly<Record<string, JsonSchema>> = Object.fromEntries(
  Object.entries<Fields>({ ...PAYLOADS, ...DOCS_PAYLOADS }).map(([type, fields]) => [
    type,
    objectSchema(fields, VOCABULARY),
  ]),
)
const TYPES = Object.keys(PAYLOAD_SCHEMAS)
const EVENT_SCHEMA = objectSchema(RECORDS.event, VOCABULARY)

/** The name of a contract: that of its file in `docs/contracts`. */
export type ContractName = 'event' | 'event-payloads' | 'snapshot' | 'issue' | 'validation-report'

/** The JSON Schemas (draft 2020-12) of a launch's events, snapshot, issues and validation report. */
export const CONTRACTS: Readonly<Record<ContractName, JsonSchema>> = {
  event: contract('event', 'A line of the event log of a launch', {
    ...EVENT_SCHEMA,
    properties: { ...EVENT_SCHEMA.properties, type: { enum: TYPES } },
    allOf: TYPES.map(type => ({
      if: { properties: { type: { const: type } } },
      // biome-ignore lint/suspicious/noThenProperty: a keyword of JSON Schema; schemas are not awaited.
      then: { properties: { payload: { $ref: `${PAYLOADS_ID}#/$defs/${type}` } } },
    })),
  }),
  'event-payloads': contract('event-payloads', 'The payloads of the events of a launch, by type', {
    $defs: PAYLOAD_SCHEMAS,
  }),
  snapshot: contract(
    'snapshot',
    'The state of a launch after an event of its log',
    objectSchema(DOCS_RECORDS.snapshot, VOCABULARY),
  ),
  issue: contract('issue', 'A problem that a gate found', objectSchema(RECORDS.issue, VOCABULARY)),
  'validation-report': contract(
    'validation-report',
    'The results of one run of all gates of a launch',
    objectSchema(RECORDS['validation-report'], VOCABULARY),
  ),
}

function contract(name: ContractName, title: string, schema: JsonSchema): JsonSchema {
  return { $schema: 'https://json-schema.org/draft/2020-12/schema', $id: idOf(name), title, ...schema }
}

/** All problems of a value by a contract. The list is empty for a valid value. */
export function contractProblems(name: ContractName, value: unknown): readonly SchemaProblem[] {
  return schemaProblems(CONTRACTS[name], value, resolve)
}

function resolve(ref: string): JsonSchema {
  const [id, definition] = ref.split('#/$defs/')
  const document = Object.values(CONTRACTS).find(({ $id }) => $id === id)
  const schema = definition === undefined ? document : document?.$defs?.[definition]
  invariant(schema !== undefined, `the contracts define ${ref}`)
  return schema
}
