/**
 * An agent that remembers. It searches, decides, writes down what it did, and
 * can be killed at any moment: run it again, and it goes on.
 *
 *   npm install annals
 *   node agent-memory.ts ./memory        (Node 22.18 or later; else: npx tsx agent-memory.ts ./memory)
 */
import { agentShared, open } from 'annals'

const db = await open({ path: process.argv[2] ?? './memory' })

// ── Runs: what is going on, and how it stands ────────────────────────────────────────────────────────────────────────
const runId = 'research-42'
const run = (await db.runs.get(runId)) ?? (await db.runs.create({ runId, tags: ['research', 'demo'] }))
console.log(`run ${run.runId} is ${run.status}`)

// From here on everything belongs to this run; no other run sees it.
const agent = db.run(runId)

// ── Key-value: working memory ────────────────────────────────────────────────────────────────────────────────────────
await agent.kv.put('config/model', 'small')
await agent.kv.put('config/limits', { tokens: 100_000, seed: 7n })
await agent.kv.put('cache/page-1', 'a page that is worth little tomorrow', { ttlMs: 86_400_000 })
console.log('configured:', (await agent.kv.list({ prefix: 'config/' })).join(', '))

// What all runs of one agent share has a scope of its own, and must be asked for by name.
const shared = agentShared({ tenant: 'default', app: 'examples', agent: 'researcher' })
await db.kv.put(shared, 'temperature', 0.2)

// ── Cells: what several workers agree on ─────────────────────────────────────────────────────────────────────────────
const { value: attempts } = await agent.cells.transitionOrInit('attempts', 0, ({ value }) => ({
  value: Number(value) + 1, // pure: it may run more than once
  result: undefined,
}))
console.log(`attempt ${attempts}`)

// ── Machines: cells that only change as they may ─────────────────────────────────────────────────────────────────────
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
  // All of it or nothing: there is no moment at which a crash could tear it apart.
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

// A step of its own, so it is asked for by itself: the attempt before may have died between the two.
if (run.status === 'Active' && (await agent.machines.isTerminal('task'))) await db.runs.complete(runId)

// ── And afterwards: read it, prove it ────────────────────────────────────────────────────────────────────────────────
for await (const event of agent.events.iterate()) {
  console.log(`  ${event.sequence} ${event.type} ${event.hash.slice(0, 12)}`)
}
const [toolCall] = await agent.traces.queryByType('ToolCall')
const tree = await agent.traces.tree(toolCall.id)
console.log(`${await agent.traces.count()} traces; the search led to ${tree?.children.length} thought`)

const chain = await agent.events.verifyChain()
console.log(
  chain.isValid ? `nobody touched these ${chain.length} events` : `event ${chain.firstInvalid} was touched`,
)

const [found] = await db.runs.query({ tags: ['research'], status: 'Completed' })
console.log(`${found.runId} is ${found.status}`)
await db.close()
