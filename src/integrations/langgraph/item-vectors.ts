import type { IndexConfig, PutOperation } from '@langchain/langgraph-checkpoint'
import { invalidArgument } from '../../core/errors.ts'

const WHOLE_ITEM = '$'

/** The vectors of the texts of several items; an empty list for an item without a text to embed. */
export async function embedItems(
  { embeddings, dims, fields = [WHOLE_ITEM] }: IndexConfig,
  puts: readonly PutOperation[],
): Promise<readonly (readonly Float32Array[])[]> {
  const texts = puts.map(({ value, index = fields }) =>
    value === null || index === false ? [] : index.flatMap(path => textsAt(value, path)),
  )
  const distinct = [...new Set(texts.flat())]
  const vectors = distinct.length === 0 ? [] : await embeddings.embedDocuments(distinct)
  const vectorOf = new Map(distinct.map((text, i) => [text, checkedVector(vectors[i], dims)]))
  return texts.map(list => list.map(text => vectorOf.get(text) as Float32Array))
}

/** The vector of a query. */
export async function embedQuery({ embeddings, dims }: IndexConfig, query: string): Promise<Float32Array> {
  return checkedVector(await embeddings.embedQuery(query), dims)
}

/** The stored form of an item's vectors, one after another. */
export function encodeVectors(vectors: readonly Float32Array[]): Uint8Array {
  const bytes = new Uint8Array(vectors.reduce((sum, vector) => sum + vector.byteLength, 0))
  let offset = 0
  for (const vector of vectors) {
    bytes.set(new Uint8Array(vector.buffer, vector.byteOffset, vector.byteLength), offset)
    offset += vector.byteLength
  }
  return bytes
}

/** The highest cosine similarity of a query and an item's vectors. */
export function similarity(query: Float32Array, stored: Uint8Array): number {
  // A copy, because floats must be aligned in memory.
  const floats = new Float32Array(stored.slice().buffer)
  let best = Number.NEGATIVE_INFINITY
  for (let start = 0; start + query.length <= floats.length; start += query.length) {
    best = Math.max(best, cosine(query, floats.subarray(start, start + query.length)))
  }
  return best
}

function cosine(a: Float32Array, b: Float32Array): number {
  let dot = 0
  let squareOfA = 0
  let squareOfB = 0
  for (let i = 0; i < a.length; i++) {
    dot += a[i] * b[i]
    squareOfA += a[i] * a[i]
    squareOfB += b[i] * b[i]
  }
  const lengths = Math.sqrt(squareOfA) * Math.sqrt(squareOfB)
  return lengths === 0 ? 0 : dot / lengths
}

function checkedVector(vector: readonly number[] | undefined, dims: number): Float32Array {
  if (vector?.length === dims) return Float32Array.from(vector)
  throw invalidArgument('index.dims', `must be the length of the embeddings, ${vector?.length ?? 0}`, dims)
}

/** The texts at a path such as `title`, `meta.title`, `chapters[*].text` or `authors[-1]`. `$` is the whole item as JSON. */
function textsAt(item: unknown, path: string): readonly string[] {
  if (path === WHOLE_ITEM) return [JSON.stringify(item)]
  let found: readonly unknown[] = [item]
  for (const part of path.replaceAll('[', '.[').split('.')) {
    if (part !== '') found = found.flatMap(value => membersAt(value, part))
  }
  return found.filter(value => value !== null && value !== undefined).map(textOf)
}

function membersAt(value: unknown, part: string): readonly unknown[] {
  const index = /^\[(\*|-?\d+)\]$/.exec(part)?.[1]
  if (index !== undefined) {
    if (!Array.isArray(value)) return []
    return index === '*' ? value : [value.at(Number(index))]
  }
  if (typeof value !== 'object' || value === null || !Object.hasOwn(value, part)) return []
  return [Reflect.get(value, part)]
}

function textOf(value: unknown): string {
  return typeof value === 'object' ? JSON.stringify(value) : String(value)
}
