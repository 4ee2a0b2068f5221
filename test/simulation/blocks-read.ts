import type { SimulatedDisk } from './simulated-disk.ts'

/** The lengths of the blocks that the work reads from data files. */
export async function blocksReadBy(
  disk: SimulatedDisk,
  work: () => Promise<unknown>,
): Promise<readonly number[]> {
  const lengths: number[] = []
  disk.onCall = ({ kind, phase, file, bytes }) => {
    if (kind === 'read' && phase === 'end' && file.startsWith('data')) lengths.push(bytes ?? 0)
  }
  await work()
  disk.onCall = undefined
  return lengths
}
