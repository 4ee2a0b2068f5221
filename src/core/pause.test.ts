import { expect, test, vi } from 'vitest'
import { pause } from './pause.ts'

test('a pause lasts as long as it was asked for', async () => {
  vi.useFakeTimers()
  try {
    let isOver = false
    const paused = pause(1_000).then(() => (isOver = true))
    await vi.advanceTimersByTimeAsync(999)
    expect(isOver).toBe(false)
    await vi.advanceTimersByTimeAsync(1)
    await paused
  } finally {
    vi.useRealTimers()
  }
})

test('a pause may last longer than a timer can, and be aborted after that', async () => {
  vi.useFakeTimers()
  try {
    const ended: string[] = []
    void pause(3e9).then(() => ended.push('long'))
    const endless = new AbortController()
    void pause(Number.POSITIVE_INFINITY, { signal: endless.signal }).then(() => ended.push('endless'))
    await vi.advanceTimersByTimeAsync(3e9 - 1)
    expect(ended).toEqual([])
    await vi.advanceTimersByTimeAsync(1)
    expect(ended).toEqual(['long'])
    endless.abort()
    await vi.advanceTimersByTimeAsync(0)
    expect(ended).toEqual(['long', 'endless'])
    expect(vi.getTimerCount()).toBe(0)
  } finally {
    vi.useRealTimers()
  }
})

test('a pause ends at once when its signal aborts, before or during it, and leaves no timer or listener', async () => {
  vi.useFakeTimers()
  try {
    await pause(1_000, { signal: AbortSignal.abort() })
    const controller = new AbortController()
    const removed = vi.spyOn(controller.signal, 'removeEventListener')
    const paused = pause(1_000, { signal: controller.signal })
    controller.abort()
    await paused
    expect(removed).toHaveBeenCalledOnce()
    expect(vi.getTimerCount()).toBe(0)
  } finally {
    vi.useRealTimers()
  }
})
