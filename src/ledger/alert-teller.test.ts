import { describe, expect, test, vi } from 'vitest'
import { contextOver } from '../../test/ledger/memory-ledger.ts'
import { AnnalsError } from '../core/errors.ts'
import { Database } from '../engine/database.ts'
import type { Entry } from '../engine/storage.ts'
import { newEvent, RUN } from '../testing/ledger-suite/events.ts'
import { ReferenceStorage } from '../testing/reference-storage.ts'
import { Ledger } from './ledger.ts'
import { ALERT_COUNT_KEY } from './stored.ts'

/** A database that calls a hook before the number of alerts is read. */
class HeldDatabase extends Database {
  beforeCount: (() => Promise<void>) | undefined

  override async get(scope: string, tag: number, key: string): Promise<Entry | undefined> {
    if (key === ALERT_COUNT_KEY) await this.beforeCount?.()
    return super.get(scope, tag, key)
  }
}

function eventOf(eventType: string, runId = RUN): ReturnType<typeof newEvent> {
  return newEvent({ eventType, runId })
}

interface Opened {
  readonly ledger: Ledger
  readonly heard: string[]
}

function openOver(database: Database): Opened {
  const heard: string[] = []
  const onAlert = ({ eventType }: { readonly eventType: string }): void => void heard.push(eventType)
  return { ledger: new Ledger({ ...contextOver(database), onAlert }, false), heard }
}

describe('onAlert', () => {
  test('is called for records that were not projected before the store was opened, and not for older alerts', async () => {
    const database = new Database(new ReferenceStorage())
    const before = openOver(database)
    await before.ledger.appendEvent(eventOf('RunPaused'))
    await vi.waitFor(() => expect(before.heard).toEqual(['RunPaused']))
    // A read-only ledger has no projector, so this record stays unprojected.
    await new Ledger(contextOver(database), true).appendEvent(eventOf('RunResumed', 'unprojected'))
    const { ledger, heard } = openOver(database)
    ledger.start()
    await vi.waitFor(() => expect(heard).toEqual(['RunResumed']))
    await vi.waitFor(() => expect(before.heard).toEqual(['RunPaused', 'RunResumed']))
    await database.close()
  })

  test('misses no alert that its own ledger raises before the existing alerts are counted', async () => {
    const database = new HeldDatabase(new ReferenceStorage())
    let release = (): void => {}
    const held = new Promise<void>(resolve => {
      release = resolve
    })
    database.beforeCount = () => held
    const { ledger, heard } = openOver(database)
    ledger.start()
    await ledger.appendEvent(eventOf('RunPaused'))
    const projecting = ledger.projectSnapshot(RUN)
    // A projector that does not wait for the count would raise the alert in this time.
    await new Promise(resolve => setTimeout(resolve, 50))
    database.beforeCount = undefined
    release()
    await projecting
    await vi.waitFor(() => expect(heard).toEqual(['RunPaused']))
    await database.close()
  })

  test('continues after a failed read of the store', async () => {
    const database = new HeldDatabase(new ReferenceStorage())
    let failures = 0
    database.beforeCount = async () => {
      if (++failures <= 1) throw new AnnalsError('IO_ERROR', 'planted')
    }
    const { ledger, heard } = openOver(database)
    const warned = new Promise<Error>(resolve => process.once('warning', resolve))
    ledger.start()
    expect(String(await warned)).toContain('reading alerts failed and will be retried')
    await ledger.appendEvents([eventOf('RunPaused'), eventOf('RunResumed')])
    await vi.waitFor(() => expect(heard).toEqual(['RunPaused', 'RunResumed']), 5_000)
    await database.close()
  })

  test('is called for one alert at a time, and does not delay the projector if it is slow', async () => {
    const database = new Database(new ReferenceStorage())
    const heard: string[] = []
    let release = (): void => {}
    const held = new Promise<void>(resolve => {
      release = resolve
    })
    const onAlert = async ({ eventType }: { readonly eventType: string }): Promise<void> => {
      heard.push(eventType)
      await held
    }
    const ledger = new Ledger({ ...contextOver(database), onAlert }, false)
    ledger.start()
    for (const eventType of ['RunPaused', 'RunResumed', 'RunStarted'])
      await ledger.appendEvent(eventOf(eventType))
    expect(await ledger.projectSnapshot(RUN)).toMatchObject({ status: 'RUNNING', invalidEvents: 2 })
    await vi.waitFor(() => expect(heard).toEqual(['RunPaused']))
    release()
    await vi.waitFor(() => expect(heard).toEqual(['RunPaused', 'RunResumed']))
    await database.close()
  })
})
