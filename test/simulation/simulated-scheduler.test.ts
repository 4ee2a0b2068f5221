import { describe, expect, test } from 'vitest'
import { Random, seedOfRun } from '../../src/testing/random.ts'
import { SimulatedClock } from '../../src/testing/simulated-clock.ts'
import { SimulatedScheduler } from './simulated-scheduler.ts'

describe('clock', () => {
  test('a simulated clock moves only when it is advanced or set', () => {
    const clock = new SimulatedClock(1_000)
    expect([clock.now(), clock.now()]).toEqual([1_000, 1_000])
    clock.advance(5)
    expect(clock.now()).toBe(1_005)
    clock.jump(-100)
    expect(clock.now()).toBe(905)
    expect(() => clock.advance(-1)).toThrow('invariant')
  })
})

describe('scheduler', () => {
  async function orderOf(seed: number): Promise<string> {
    const scheduler = new SimulatedScheduler(seed, new SimulatedClock())
    let order = ''
    const task = async (name: string): Promise<void> => {
      for (let i = 0; i < 3; i++) {
        await scheduler.turn()
        order += name
      }
    }
    const tasks = [...'abcd'].map(task)
    expect(await scheduler.run()).toBe(12)
    await Promise.all(tasks)
    return order
  }

  test('the same seed gives the same order, other seeds give others', async () => {
    expect(await orderOf(7)).toBe(await orderOf(7))
    const orders = new Set(await Promise.all(Array.from({ length: 20 }, (_, seed) => orderOf(seed))))
    expect(orders.size).toBeGreaterThan(15)
  })

  test('time advances to the next timer when no task is left', async () => {
    const clock = new SimulatedClock(0)
    const scheduler = new SimulatedScheduler(1, clock)
    const events: string[] = []
    const note = (name: string) => (): number => events.push(`${name} at ${clock.now()}`)
    scheduler.timer(20, note('second'))
    const cancel = scheduler.timer(15, note('cancelled'))
    scheduler.timer(10, note('first'))
    scheduler.timer(20, note('third'))
    scheduler.later(note('task'))
    cancel()
    const sleeper = scheduler.sleep(30).then(note('sleeper'))
    await scheduler.run()
    await sleeper
    expect(events).toEqual(['task at 0', 'first at 10', 'second at 20', 'third at 20', 'sleeper at 30'])
  })
})

describe('random', () => {
  test('the same seed gives the same numbers, and a fork has its own', () => {
    const draw = (random: Random): number[] => Array.from({ length: 5 }, () => random.below(1_000))
    expect(draw(new Random(1))).toEqual(draw(new Random(1)))
    expect(draw(new Random(1))).not.toEqual(draw(new Random(2)))
    expect(draw(new Random(1).fork())).not.toEqual(draw(new Random(1)))
  })

  test('numbers fill their range evenly', () => {
    const random = new Random(42)
    const counts = new Array<number>(10).fill(0)
    for (let i = 0; i < 100_000; i++) counts[random.below(10)]++
    for (const count of counts) expect(Math.abs(count - 10_000)).toBeLessThan(500)
    expect(random.bytes(1_000)).toMatch(/[\x80-\xff]/)
  })

  test('the seed of a run is the one given, if any', () => {
    const before = process.env['ANNALS_SEED']
    try {
      process.env['ANNALS_SEED'] = '123'
      expect(seedOfRun()).toBe(123)
      process.env['ANNALS_SEED'] = 'abc'
      expect(() => seedOfRun()).toThrow(expect.objectContaining({ code: 'INVALID_ARGUMENT' }))
      delete process.env['ANNALS_SEED']
      expect(Number.isInteger(seedOfRun())).toBe(true)
    } finally {
      if (before !== undefined) process.env['ANNALS_SEED'] = before
    }
  })
})
