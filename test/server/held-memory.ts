import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'

setFlagsFromString('--expose-gc')
const collect = runInNewContext('gc') as () => void

/** What somebody still holds, in the heap and beside it. Garbage does not count: how much of it waits is up to V8. */
export function heldBytes(): number {
  // The first collection finds unused buffers, and the second one waits until their memory is released.
  for (let i = 0; i < 2; i++) collect()
  const { heapUsed, external } = process.memoryUsage()
  return heapUsed + external
}
