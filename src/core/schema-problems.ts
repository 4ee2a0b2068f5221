import type { JsonSchema, JsonType } from './schema.ts'

/** One way in which a value differs from its schema. */
export interface SchemaProblem {
  /** Where in the value, such as `$.payload.inputs[0]`. */
  readonly path: string
  readonly message: string
  /** The keyword of the schema that the value violates. */
  readonly keyword: keyof JsonSchema
}

/** Finds the schema that a `$ref` names. */
export type ResolveSchema = (ref: string) => JsonSchema

/** All problems of a value by a schema. The list is empty for a valid value. */
export function schemaProblems(
  schema: JsonSchema,
  value: unknown,
  resolve: ResolveSchema,
  path = '$',
): readonly SchemaProblem[] {
  const problems: SchemaProblem[] = []
  const wrong = (keyword: keyof JsonSchema, message: string): void => {
    problems.push({ path, message, keyword })
  }
  const also = (part: JsonSchema, of: unknown = value, at: string = path): void => {
    problems.push(...schemaProblems(part, of, resolve, at))
  }
  if (schema.$ref !== undefined) also(resolve(schema.$ref))
  if (schema.type !== undefined && !hasType(value, schema.type)) {
    wrong('type', `is not of type ${schema.type}`)
    return problems
  }
  if (schema.const !== undefined && value !== schema.const)
    wrong('const', `is not ${JSON.stringify(schema.const)}`)
  if (schema.enum !== undefined && !schema.enum.includes(value as string)) {
    wrong('enum', `is none of ${schema.enum.join(', ')}`)
  }
  if (typeof value === 'string') checkString(schema, value, wrong)
  if (typeof value === 'number' && schema.minimum !== undefined && value < schema.minimum) {
    wrong('minimum', `is less than ${schema.minimum}`)
  }
  if (typeof value === 'number' && schema.maximum !== undefined && value > schema.maximum) {
    wrong('maximum', `is more than ${schema.maximum}`)
  }
  if (Array.isArray(value) && schema.items !== undefined) {
    for (const [index, item] of value.entries()) also(schema.items, item, `${path}[${index}]`)
  }
  if (hasType(value, 'object')) checkObject(schema, value as Record<string, unknown>, path, wrong, also)
  for (const part of schema.allOf ?? []) also(part)
  if (schema.if !== undefined && schema.then !== undefined) {
    if (schemaProblems(schema.if, value, resolve, path).length === 0) also(schema.then)
  }
  return problems
}

function checkString(
  schema: JsonSchema,
  text: string,
  wrong: (keyword: keyof JsonSchema, message: string) => void,
): void {
  if (schema.minLength !== undefined && text.length < schema.minLength) wrong('minLength', 'is too short')
  if (schema.maxLength !== undefined && text.length > schema.maxLength) wrong('maxLength', 'is too long')
  if (schema.pattern !== undefined && !expressionOf(schema.pattern).test(text)) {
    wrong('pattern', `does not match ${schema.pattern}`)
  }
}

const expressions = new Map<string, RegExp>()

/** Expressions are cached, because compiling one takes longer than running it. */
function expressionOf(pattern: string): RegExp {
  const known = expressions.get(pattern)
  if (known !== undefined) return known
  const expression = new RegExp(pattern, 'u')
  expressions.set(pattern, expression)
  return expression
}

function checkObject(
  schema: JsonSchema,
  value: Readonly<Record<string, unknown>>,
  path: string,
  wrong: (keyword: keyof JsonSchema, message: string) => void,
  also: (part: JsonSchema, of: unknown, at: string) => void,
): void {
  const { properties = {}, required = [], additionalProperties = true } = schema
  for (const name of required) if (!Object.hasOwn(value, name)) wrong('required', `has no ${name}`)
  for (const name of Object.keys(properties)) {
    if (Object.hasOwn(value, name)) also(properties[name], value[name], `${path}.${name}`)
  }
  if (additionalProperties === true) return
  for (const name of Object.keys(value)) {
    if (Object.hasOwn(properties, name)) continue
    if (additionalProperties === false) wrong('additionalProperties', `has an unknown field ${name}`)
    else also(additionalProperties, value[name], `${path}.${name}`)
  }
}

function hasType(value: unknown, type: JsonType): boolean {
  switch (type) {
    case 'object':
      return typeof value === 'object' && value !== null && !Array.isArray(value)
    case 'array':
      return Array.isArray(value)
    case 'integer':
      return Number.isInteger(value)
    case 'null':
      return value === null
    default:
      return typeof value === type
  }
}
