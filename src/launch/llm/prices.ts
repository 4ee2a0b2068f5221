import { AnnalsError } from '../../core/errors.ts'
import type { TokenUsage } from '../events.ts'

/** USD per million tokens. */
export interface Price {
  readonly input: number
  readonly output: number
}

/** By the model's name, exactly as it is asked for. */
export type PriceTable = Readonly<Record<string, Price>>

/**
 * For a start, and not kept up to date: what providers ask changes without
 * notice, and nobody has compared these with their pages. So prices
 * of the user go first. A model that is in neither table has
 * no cost in its events rather than a wrong one.
 */
export const LIST_PRICES: PriceTable = {
  'gpt-4o': { input: 2.5, output: 10 },
  'gpt-4o-mini': { input: 0.15, output: 0.6 },
  'gpt-4.1': { input: 2, output: 8 },
  'gpt-4.1-mini': { input: 0.4, output: 1.6 },
  'gpt-4.1-nano': { input: 0.1, output: 0.4 },
  o3: { input: 2, output: 8 },
  'o4-mini': { input: 1.1, output: 4.4 },
  'claude-sonnet-4-20250514': { input: 3, output: 15 },
}

export function checkPrices(prices: unknown): PriceTable {
  if (typeof prices !== 'object' || prices === null) return refuse('prices must be an object', prices)
  for (const [model, price] of Object.entries(prices as Record<string, Partial<Price> | null>)) {
    for (const side of ['input', 'output'] as const) {
      const usd = price?.[side]
      if (typeof usd === 'number' && Number.isFinite(usd) && usd >= 0) continue
      return refuse(
        `the price of ${model}, ${side}, must be a number of USD per million tokens, 0 or more`,
        usd,
      )
    }
  }
  return prices as PriceTable
}

/** Added up before it is divided, and without the dust of binary fractions. Undefined for a model without a price. */
export function costUsd(prices: PriceTable, model: string, usage: TokenUsage): number | undefined {
  const price = Object.hasOwn(prices, model) ? prices[model] : undefined
  if (price === undefined) return undefined
  const millionths = usage.input_tokens * price.input + usage.output_tokens * price.output
  return Number((millionths / 1_000_000).toFixed(10))
}

function refuse(message: string, value: unknown): never {
  throw new AnnalsError('INVALID_ARGUMENT', message, { name: 'prices', value })
}
