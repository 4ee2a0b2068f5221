/**
 * An agent with a memory. It searches, decides and records what it did. You can kill it at any moment and run it again: it
 * continues where it was.
 *
 *   npm install annals
 *   node agent-memory.ts ./memory        (Node 22.18 or later; before: npx tsx agent-memory.ts ./memory)
 */
import { agentShared, open } from 'annals'

const db = await open({ path: process.argv[2] ?? './memory' })

// ── Runs: which runs exist, and their status ─────────────────────────────────────────────────────────────────────────
const runId = 'research-42'
const run = (await db.runs.get(runId)) ?? (await db.runs.create({ runId, tags: ['research', 'demo'] }))
console.log(`run ${run.runId} is ${run.status}`)

// Everything that goes through this handle belongs to this run. No other run sees it.
const agent = db.run(runId)

// ── Key-value storage: working memory ────────────────────────────────────────────────────────────────────────────────
await agent.kv.put('config/model', 'small')
await agent.kv.put('config/limits', { tokens: 100_000, seed: 7n })
await agent.kv.put('cache/page-1', 'a page that expires tomorrow', { ttlMs: 86_400_000 })
console.log('configured:', (await agent.kv.list({ prefix: 'config/' })).join(', '))

// All runs of an agent can share data, in a scope that they name explicitly.
const shared = agentShared({ tenant: 'default', app: 'examples', agent: 'researcher' })
await db.kv.put(shared, 'temperature', 0.2)

// ── Cells: values that several workers change ────────────────────────────────────────────────────────────────────────
const { value: attempts } = await agent.cells.transitionOrInit('attempts', 0, ({ value }) => ({
  value: Number(value) + 1, // must be pure, because it may run more than once
  result: undefined,
}))
console.log(`attempt ${attempts}`)

// ── Machines: values with allowed transitions ────────────────────────────────────────────────────────────────────────
await agent.machines.define('task', {
  initial: 'planned',
  terminal: ['done'],
  transitions: [
    { from: 'planned', event: 'search', to: 'searching' },
    { from: 'searching', event: 'answer', to: 'done' },
  ],
})

// ── Events and traces: what happened, and why ────────────────────────────────────────────────────────────────────────
if (await agent.machines.can('task', 'search')) {
  // All of these changes are stored, or none, even if the process dies in the middle.
  await agent.transaction(async tx => {
    await tx.machines.send('task', 'search')
    const call = await tx.traces.record(
      { type: 'ToolCall', toolName: 'web_search', arguments: { query: 'b-trees' }, durationMs: 150 },
      { tags: ['network'] },
    )
    await tx.traces.recordChild(call, { type: 'Thought', content: 'two good results', confidence: 0.85 })
    await tx.events.append('tool_call', { tool: 'web_search', query: 'b-trees' })
    await tx.events.append('tool_result', { tool: 'web_search', results: ['Bayer 1972', 'Comer 1979'] })
    await tx.kv.put('results', ['Bayer 1972', 'Comer 1979'])
  })
}

if (await agent.machines.can('task', 'answer')) {
  await agent.transaction(async tx => {
    await tx.machines.send('task', 'answer')
    await tx.events.append('answer', { text: 'A B-tree is a balanced search tree.' })
    await tx.traces.record({
      type: 'Decision',
      question: 'Which source?',
      options: ['Bayer 1972', 'Comer 1979'],
      chosen: 'Comer 1979',
      reasoning: 'a survey is easier to read',
    })
  })
}

// Completing the run is a separate commit, so check it separately: an earlier attempt may have died just before it.
if (run.status === 'Active' && (await agent.machines.isTerminal('task'))) await db.runs.complete(runId)

// ── Afterwards: read and verify ──────────────────────────────────────────────────────────────────────────────────────
for await (const event of agent.events.iterate()) {
  console.log(`  ${event.sequence} ${event.type} ${event.hash.slice(0, 12)}`)
}
const [toolCall] = await agent.traces.queryByType('ToolCall')
const tree = await agent.traces.tree(toolCall.id)
console.log(`${await agent.traces.count()} traces; the search led to ${tree?.children.length} thought`)

const chain = await agent.events.verifyChain()
console.log(
  chain.isValid
    ? `the hash chain of ${chain.length} events is intact`
    : `the hash chain is broken at event ${chain.firstInvalid}`,
)

const [found] = await db.runs.query({ tags: ['research'], status: 'Completed' })
console.log(`${found.runId} is ${found.status}`)
await db.close()
