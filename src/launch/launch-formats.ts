/** All formats of a launch's files, and the types that follow from them. `annals/launch` exports this as `formats`. */

export type {
  Fields,
  Flat,
  FromFields,
  FromName,
  FromSchema,
  JsonType,
  JsonTypes,
  Vocabulary,
} from '../core/schema.ts'
export { DOCS_PAYLOADS, DOCS_RECORDS, DOCS_VALUES } from './docs/formats.ts'
export { PAYLOADS, RECORDS, VALUES } from './formats.ts'
