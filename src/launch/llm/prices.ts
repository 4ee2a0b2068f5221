import { invalidArgument } from '../../core/errors.ts'
import type { TokenUsage } from '../events.ts'

/** The price of a model in USD per million tokens. */
export interface Price {
  /** The price of tokens of requests. */
  readonly input: number
  /** The price of tokens of answers. */
  readonly output: number
}

/** Prices by the name of the model, exactly as it is in requests. */
export type PriceTable = Readonly<Record<string, Price>>

/**
 * Default prices. They are not kept up to date, so prices of the user go
 * first. The events of a model without a price have no cost.
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
  if (typeof prices !== 'object' || prices === null)
    throw invalidArgument('prices', 'must be an object', prices)
  for (const [model, price] of Object.entries(prices as Record<string, Partial<Price> | null>)) {
    for (const side of ['input', 'output'] as const) {
      const usd = price?.[side]
      if (typeof usd === 'number' && Number.isFinite(usd) && usd >= 0) continue
      throw invalidArgument(
        'prices',
        `must have USD per million tokens, 0 or more, for ${model}.${side}`,
        usd,
      )
    }
  }
  return prices as PriceTable
}

/** The price of a call, rounded to ten decimals; undefined for a model without a price. */
export function costUsd(prices: PriceTable, model: string, usage: TokenUsage): number | undefined {
  const price = Object.hasOwn(prices, model) ? prices[model] : undefined
  if (price === undefined) return undefined
  const millionths = usage.input_tokens * price.input + usage.output_tokens * price.output
  return Number((millionths / 1_000_000).toFixed(10))
}
