/**
 * Sessions in Keyv that survive a restart of the program, and expire.
 *
 *   npm install annals keyv
 *   node keyv-sessions.ts ./sessions     (Node 22.18 or later; before: npx tsx keyv-sessions.ts ./sessions)
 */
import { open } from 'annals'
import { AnnalsKeyv } from 'annals/keyv'
import Keyv from 'keyv'

interface Session {
  readonly user: string
  readonly visits: number
}

const db = await open({ path: process.argv[2] ?? './sessions' })
const store = new AnnalsKeyv(db, { scope: 'sessions' })
const sessions = new Keyv<Session>({ store, namespace: 'web', throwOnErrors: true })

const { visits } = (await sessions.get('session-1')) ?? { visits: 0 }
await sessions.set('session-1', { user: 'ada', visits: visits + 1 }, 86_400_000)
console.log(`visit ${visits + 1}`)

// Expired sessions are gone from the database too.
await sessions.set('session-2', { user: 'bob', visits: 1 }, 1)
while (await sessions.has('session-2')) await new Promise(resolve => setTimeout(resolve, 1))
console.log(`stored: ${(await db.kv.list('sessions')).join(', ')}`)
await db.close()
