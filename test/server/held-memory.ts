import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'

setFlagsFromString('--expose-gc')
const collect = runInNewContext('gc') as () => void

/** The bytes in use, in the heap and outside it. Garbage does not count, because V8 decides when to collect it. */
export function heldBytes(): number {
  // The first collection finds unused buffers, and the second one waits until their memory is released.
  for (let i = 0; i < 2; i++) collect()
  const { heapUsed, external } = process.memoryUsage()
  return heapUsed + external
}
