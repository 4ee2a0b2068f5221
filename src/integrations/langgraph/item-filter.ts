import { isDeepStrictEqual } from 'node:util'
import type { MatchCondition } from '@langchain/langgraph-checkpoint'

type Operator = (value: unknown, operand: unknown) => boolean

/** LangGraph's operators of a filter. Comparisons are numeric, as in LangGraph's own stores. */
const OPERATORS: Readonly<Record<string, Operator>> = {
  $eq: isDeepStrictEqual,
  $ne: (value, operand) => !isDeepStrictEqual(value, operand),
  $gt: (value, operand) => Number(value) > Number(operand),
  $gte: (value, operand) => Number(value) >= Number(operand),
  $lt: (value, operand) => Number(value) < Number(operand),
  $lte: (value, operand) => Number(value) <= Number(operand),
  $in: (value, operand) => isAmong(value, operand),
  $nin: (value, operand) => !isAmong(value, operand),
}

/** Whether an item's value fulfils a filter. */
export function matchesFilter(
  value: Readonly<Record<string, unknown>>,
  filter: Readonly<Record<string, unknown>> = {},
): boolean {
  return Object.entries(filter).every(([name, condition]) => {
    const field = Object.hasOwn(value, name) ? value[name] : undefined
    if (!isOperators(condition)) return isDeepStrictEqual(field, condition)
    return Object.entries(condition).every(([operator, operand]) => OPERATORS[operator](field, operand))
  })
}

/** Whether a namespace begins or ends with a path, in which `*` stands for any label. */
export function matchesPath(namespace: readonly string[], { matchType, path }: MatchCondition): boolean {
  if (path.length > namespace.length) return false
  const start = matchType === 'prefix' ? 0 : namespace.length - path.length
  return path.every((label, i) => label === '*' || label === namespace[start + i])
}

function isOperators(condition: unknown): condition is Readonly<Record<string, unknown>> {
  if (typeof condition !== 'object' || condition === null || Array.isArray(condition)) return false
  const names = Object.keys(condition)
  return names.length > 0 && names.every(name => Object.hasOwn(OPERATORS, name))
}

function isAmong(value: unknown, list: unknown): boolean {
  return Array.isArray(list) && list.some(one => isDeepStrictEqual(one, value))
}
