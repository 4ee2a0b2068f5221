import { Annotation, END, START, StateGraph } from '@langchain/langgraph'
import { uuid6 } from '@langchain/langgraph-checkpoint'
import { duel } from '../measure.mjs'
import { newDatabase, withServer } from '../postgres-server.mjs'

const MODULE = './workloads/langgraph.mjs'
/** How many checkpoints the thread has that is read. */
const CHECKPOINTS = 200
/** One checkpoint in this many is an input, as in a graph with four steps. */
const STEPS = 5
const MESSAGES = 20
const PAGE = 10
const TEXT = 'x'.repeat(200)
const CONTEXT = 'y'.repeat(2_000)

const at = thread => ({ configurable: { thread_id: thread, checkpoint_ns: '' } })
const sourceOf = step => (step % STEPS === 0 ? 'input' : 'loop')

/** Puts checkpoints of a chat: the messages change with each, a larger context never does. */
async function chat(saver, thread) {
  let config = at(thread)
  let step = 0
  return async () => {
    const isFirst = step === 0
    const version = step + 1
    const messages = Array.from({ length: Math.min(version, MESSAGES) }, (_, i) => ({
      role: 'user',
      text: TEXT,
      i,
    }))
    const checkpoint = {
      v: 4,
      id: uuid6(step),
      ts: new Date().toISOString(),
      channel_values: { messages, context: CONTEXT },
      channel_versions: { messages: version, context: 1 },
      versions_seen: { model: { messages: step } },
    }
    const metadata = { source: sourceOf(step), step, parents: {}, user: 'ada' }
    const changed = isFirst ? { messages: version, context: 1 } : { messages: version }
    config = await saver.put(config, checkpoint, metadata, changed)
    step++
    return config
  }
}

async function loaded(saver) {
  const put = await chat(saver, 'read')
  const configs = []
  for (let i = 0; i < CHECKPOINTS; i++) {
    const config = await put()
    await saver.putWrites(config, [['messages', { text: TEXT }]], `task-${i}`)
    configs.push(config)
  }
  return configs
}

async function count(tuples) {
  let found = 0
  for await (const { checkpoint } of tuples) if (checkpoint.channel_values.messages.length > 0) found++
  return found
}

function graphOf(saver) {
  const list = { reducer: (a, b) => [...a, ...b].slice(-MESSAGES), default: () => [] }
  const State = Annotation.Root({ messages: Annotation(list), context: Annotation })
  const node = name => () => ({ messages: [{ name, text: TEXT }] })
  return new StateGraph(State)
    .addNode('plan', node('plan'))
    .addNode('act', node('act'))
    .addNode('answer', node('answer'))
    .addEdge(START, 'plan')
    .addEdge('plan', 'act')
    .addEdge('act', 'answer')
    .addEdge('answer', END)
    .compile({ checkpointer: saver })
}

const OPERATIONS = [
  { title: 'put', must: 1, prepare: ({ saver }) => chat(saver, 'put') },
  {
    title: 'putWrites',
    must: 1,
    async prepare({ saver }) {
      const config = await (await chat(saver, 'writes'))()
      let task = 0
      return () =>
        saver.putWrites(
          config,
          [
            ['messages', { text: TEXT }],
            ['other', 1],
          ],
          `task-${task++}`,
        )
    },
  },
  {
    title: 'getTuple, newest',
    must: 1,
    async prepare({ saver }) {
      await loaded(saver)
      return () => saver.getTuple(at('read'))
    },
    verify: tuple => tuple.checkpoint.channel_values.messages.length === MESSAGES,
  },
  {
    title: 'getTuple, by id',
    must: 1,
    async prepare({ saver }) {
      const configs = await loaded(saver)
      let next = 0
      return () => saver.getTuple(configs[(next++ * 37) % CHECKPOINTS])
    },
    verify: tuple => tuple.pendingWrites.length === 1,
  },
  ...[
    ['list, newest 10', { limit: PAGE }],
    ['list, 10 with source input', { limit: PAGE, filter: { source: 'input' } }],
    ['list, one step', { filter: { step: CHECKPOINTS >> 1 } }, 1],
  ].map(([title, options, expected = PAGE]) => ({
    title,
    must: 1,
    async prepare({ saver }) {
      await loaded(saver)
      return () => count(saver.list(at('read'), options))
    },
    verify: found => found === expected,
  })),
  {
    title: 'a graph of three steps',
    must: 1.2,
    async prepare({ saver }) {
      const graph = graphOf(saver)
      let turn = 0
      return () => graph.invoke({ messages: [{ text: TEXT }], context: CONTEXT }, at(`thread-${turn++ % 8}`))
    },
    verify: ({ messages }) => messages.length > 3,
  },
]

export const cases = OPERATIONS.map(operation => ({ inFlight: 1, ...operation }))

/** Each operation against LangGraph's own checkpointers: on disk against SQLite, and on one PostgreSQL server. */
export async function run(settings) {
  const rows = []
  for (const [index, { title, must }] of cases.entries()) {
    for (const durability of ['durable', 'relaxed']) {
      console.error(`langgraph: ${title}, ${durability}`)
      const contestants = [
        { name: 'annals', peer: 'annals-langgraph', durability, isChecked: true },
        { name: 'SqliteSaver', peer: 'sqlite-saver', durability, isChecked: true },
      ]
      const rates = await duel(MODULE, index, { contestants }, settings)
      rows.push(rowOf(`LangGraph, ${title}, ${durability}`, rates, 'SqliteSaver', must))
    }
  }
  return withServer(async server => {
    for (const [index, { title, must }] of cases.entries()) {
      console.error(`langgraph: ${title}, PostgreSQL`)
      const contestants = []
      for (const [name, peer] of [
        ['annals', 'annals-langgraph'],
        ['PostgresSaver', 'postgres-saver'],
      ]) {
        const connectionString = await newDatabase(server, `langgraph_${index}_${contestants.length}`)
        contestants.push({ name, peer, connectionString, isChecked: true })
      }
      const rates = await duel(MODULE, index, { contestants }, settings)
      rows.push(rowOf(`LangGraph, ${title}, PostgreSQL`, rates, 'PostgresSaver', must))
    }
    return rows
  })
}

function rowOf(title, rates, theirs, must) {
  return {
    title,
    unit: 'ops/s',
    ours: { name: 'annals', ...rates.get('annals') },
    theirs: { name: theirs, ...rates.get(theirs) },
    ratio: rates.get('annals').value / rates.get(theirs).value,
    must: { atLeast: must },
    aim: 2,
  }
}
