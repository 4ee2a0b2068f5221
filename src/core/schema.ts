import { invariant } from './invariant.ts'

/**
 * Data formats, each defined once. A format is a table of fields. Its static
 * type (`FromFields`) and its JSON Schema (`objectSchema`) both follow from
 * the table, so they cannot disagree.
 *
 *   const VALUES = { name: { type: 'string', minLength: 1 }, level: { enum: ['info', 'error'] } } as const
 *   const RECORDS = {
 *     place: { path: 'name', 'line?': 'name' },
 *     issue: { title: 'name', level: 'level', 'places?': 'place[]', 'labels?': 'name{}' },
 *     'closed-issue': { '...': 'issue', reason: 'name' },
 *   } as const
 *
 * A field name that ends in `?` is optional. A field's value names a value or
 * a record of the vocabulary; `[]` behind it makes a list, `{}` a map. The
 * field `...` takes over all fields of another record. Tables hold literals
 * only, because `isolatedDeclarations` infers the types of nothing else.
 */

/** The keywords of JSON Schema (draft 2020-12) that formats use. `schemaProblems` checks all of them. */
export interface JsonSchema {
  /** The draft of JSON Schema. */
  readonly $schema?: string
  /** The id that other schemas refer to. */
  readonly $id?: string
  /** Schemas that references name. */
  readonly $defs?: Readonly<Record<string, JsonSchema>>
  /** Refers to another schema by its id. */
  readonly $ref?: string
  /** What the value is. */
  readonly title?: string
  /** More about the value. */
  readonly description?: string
  /** The type of the value. */
  readonly type?: JsonType
  /** The only valid value. */
  readonly const?: string | number | boolean
  /** The valid values. */
  readonly enum?: readonly string[]
  /** A regular expression that a string must match. */
  readonly pattern?: string
  /** The shortest length of a string. */
  readonly minLength?: number
  /** The longest length of a string. */
  readonly maxLength?: number
  /** The smallest number. */
  readonly minimum?: number
  /** The largest number. */
  readonly maximum?: number
  /** The schemas of an object's fields. */
  readonly properties?: Readonly<Record<string, JsonSchema>>
  /** The fields that an object must have. */
  readonly required?: readonly string[]
  /** Whether other fields are valid, or their schema. */
  readonly additionalProperties?: boolean | JsonSchema
  /** The schema of a list's items. */
  readonly items?: JsonSchema
  /** Schemas that all apply. */
  readonly allOf?: readonly JsonSchema[]
  /** Values that are valid by this schema must be valid by `then`. */
  readonly if?: JsonSchema
  /** Applies to values that are valid by `if`. */
  readonly then?: JsonSchema
}

/** The types of JSON values. */
export type JsonType = 'object' | 'array' | 'string' | 'integer' | 'number' | 'boolean' | 'null'

/** Field names, each with the name of its format. */
export type Fields = Readonly<Record<string, string>>

/** The formats that fields can name. */
export interface Vocabulary {
  /** Formats of single values, as JSON Schemas. */
  readonly values: Readonly<Record<string, JsonSchema>>
  /** Formats of objects. A record can name other records. */
  readonly records: Readonly<Record<string, Fields>>
  /** The ids of records that have a schema document of their own. Other schemas refer to it by `$ref`. */
  readonly references?: Readonly<Record<string, string>>
}

/** The values of each JSON type. */
export type JsonTypes = {
  readonly object: { readonly [name: string]: unknown }
  readonly array: readonly unknown[]
  readonly string: string
  readonly integer: number
  readonly number: number
  readonly boolean: boolean
  readonly null: null
}

/** The type of the values that a schema of a single value allows. */
export type FromSchema<S> = S extends { readonly const: infer C }
  ? C
  : S extends { readonly enum: readonly (infer E)[] }
    ? E
    : S extends { readonly type: infer T extends JsonType }
      ? JsonTypes[T]
      : unknown

/** The type of the values that a format name allows. */
export type FromName<N, V extends Vocabulary> = N extends `${infer Item}[]`
  ? readonly FromName<Item, V>[]
  : N extends `${infer Item}{}`
    ? { readonly [name: string]: FromName<Item, V> }
    : N extends keyof V['records']
      ? FromFields<V['records'][N], V>
      : N extends keyof V['values']
        ? FromSchema<V['values'][N]>
        : never

/** The type of the objects that a table of fields allows. */
export type FromFields<F, V extends Vocabulary> = [keyof F] extends [never]
  ? Readonly<Record<string, never>>
  : Flat<
      (F extends { readonly '...': infer Base } ? FromName<Base, V> : unknown) & {
        readonly [K in keyof F as K extends `${string}?` | '...' ? never : K]: FromName<F[K], V>
      } & {
        readonly [K in keyof F as K extends `${infer Name}?` ? Name : never]?: FromName<F[K], V>
      }
    >

/** One object type in place of an intersection, so that editors show its fields. */
export type Flat<T> = { [K in keyof T]: T[K] }

/** The JSON Schema of an object with these fields and no others. */
export function objectSchema(fields: Fields, vocabulary: Vocabulary): JsonSchema {
  const all = Object.entries(allFields(fields, vocabulary))
  return {
    type: 'object',
    properties: Object.fromEntries(
      all.map(([name, format]) => [name.replace('?', ''), namedSchema(format, vocabulary)]),
    ),
    required: all.map(([name]) => name).filter(name => !name.endsWith('?')),
    additionalProperties: false,
  }
}

function allFields({ '...': base, ...own }: Fields, vocabulary: Vocabulary): Fields {
  if (base === undefined) return own
  invariant(Object.hasOwn(vocabulary.records, base), `the vocabulary defines the record ${base}`)
  return { ...allFields(vocabulary.records[base], vocabulary), ...own }
}

function namedSchema(name: string, vocabulary: Vocabulary): JsonSchema {
  const { values, records, references = {} } = vocabulary
  if (name.endsWith('[]')) return { type: 'array', items: namedSchema(name.slice(0, -2), vocabulary) }
  if (name.endsWith('{}')) {
    return { type: 'object', additionalProperties: namedSchema(name.slice(0, -2), vocabulary) }
  }
  if (Object.hasOwn(references, name)) return { $ref: references[name] }
  if (Object.hasOwn(records, name)) return objectSchema(records[name], vocabulary)
  invariant(Object.hasOwn(values, name), `the vocabulary defines ${name}`)
  return values[name]
}
