import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { expect, it } from 'vitest'
import type { Disk, DiskFile } from '../../src/disk/disk.ts'
import { openNodeDisk } from '../../src/disk/node-disk.ts'
import { Random, seedOfRun } from '../../src/testing/random.ts'
import type { DiskCallKind } from './disk-faults.ts'
import { SimulatedDisk } from './simulated-disk.ts'

it('a simulated disk without faults behaves like the real one', async () => {
  const seed = seedOfRun()
  const random = new Random(seed)
  const folder = mkdtempSync(join(tmpdir(), 'annals-twin-'))
  try {
    for (let round = 0; round < 20; round++) {
      const disks: readonly Disk[] = [openNodeDisk(join(folder, String(round))), new SimulatedDisk().handle()]
      for (let step = 0; step < 60; step++) {
        const command = randomCommand(random)
        const [real, simulated] = await Promise.all(disks.map(disk => resultOf(disk, command)))
        expect(simulated, `seed ${seed}, round ${round}, ${JSON.stringify(command)}`).toEqual(real)
      }
      for (const disk of disks) disk.close()
    }
  } finally {
    rmSync(folder, { recursive: true })
  }
})

/** `f` and `f/g` are folders if they exist. */
const NAMES: readonly string[] = ['a', 'b', 'f/a', 'f/b', 'f/g/a']
const FOLDERS: readonly string[] = ['f', 'f/g']

interface Command {
  readonly kind: DiskCallKind
  readonly name: string
  readonly to: string
  readonly position: number
  readonly length: number
  readonly fill: number
}

function randomCommand(random: Random): Command {
  return {
    kind: random.pick([
      'list',
      'create',
      'open',
      'rename',
      'remove',
      'makeFolder',
      'removeFolder',
      'syncFolder',
      'size',
      'read',
      'write',
      'write',
      'writeLater',
      'truncate',
      'sync',
    ]),
    name: random.pick(NAMES),
    to: random.pick(NAMES),
    position: random.below(random.chance(0.5) ? 20 : 9000),
    length: random.below(random.chance(0.5) ? 20 : 9000),
    fill: 1 + random.below(255),
  }
}

async function resultOf(disk: Disk, command: Command): Promise<unknown> {
  const { kind, name, to, position, length, fill } = command
  const folder = FOLDERS[position % FOLDERS.length]
  let file: DiskFile | undefined
  try {
    if (kind === 'list') return [disk.list(), disk.folders(), disk.list(folder), disk.folders(folder)]
    if (kind === 'rename') return disk.rename(name, dirname(name) === dirname(to) ? to : name)
    if (kind === 'remove') return disk.remove(name)
    if (kind === 'makeFolder') return disk.makeFolder(folder)
    if (kind === 'removeFolder') return disk.removeFolder(folder)
    if (kind === 'syncFolder') return disk.folder(folder).syncFolder()
    file = disk.open(name, kind === 'create' ? 'create' : kind === 'open' ? 'read' : 'write')
    const buffer = Buffer.alloc(length, fill)
    if (kind === 'read') return [file.read(buffer, position), buffer.toString('latin1')]
    if (kind === 'open') return file.write(buffer.fill(fill, 0, 1), position)
    if (kind === 'write') return file.write(buffer, position)
    if (kind === 'writeLater') return await file.writeLater(buffer, position)
    if (kind === 'truncate') return file.truncate(position)
    if (kind === 'sync') file.sync()
    return file.size()
  } catch (error) {
    return (error as NodeJS.ErrnoException).code
  } finally {
    file?.close()
  }
}
