// Runs turns of a graph on a store in a folder, and prints a line after each step of the graph and after each turn.
//
//   node langgraph-process.mjs <folder> <turns>
//
// Each turn appends one entry per step to the state: `<turn>.<step>`. An interrupted turn is continued first. The process exits
// when the thread has the given number of turns.
import { Annotation, END, Send, START, StateGraph } from '@langchain/langgraph'
import { open } from '../../dist/index.js'
import { AnnalsSaver } from '../../dist/integrations/langgraph.js'

const [folder, turns] = process.argv.slice(2)
const say = text => process.stdout.write(`${text}\n`)

const list = { reducer: (a, b) => [...a, ...b], default: () => [] }
const State = Annotation.Root({ turn: Annotation, steps: Annotation(list), parts: Annotation(list) })

const step = name => async state => {
  say(`step ${state.turn}.${name}`)
  return { steps: [`${state.turn}.${name}`] }
}
const part = async ({ turn, number }) => {
  say(`part ${turn}.${number}`)
  return { parts: [`${turn}.${number}`] }
}

const db = await open({ path: folder })
const graph = new StateGraph(State)
  .addNode('first', step('first'))
  .addNode('second', step('second'))
  .addNode('part', part)
  .addNode('last', step('last'))
  .addEdge(START, 'first')
  .addEdge('first', 'second')
  .addConditionalEdges('second', ({ turn }) => [0, 1, 2].map(number => new Send('part', { turn, number })), [
    'part',
  ])
  .addEdge('part', 'last')
  .addEdge('last', END)
  .compile({ checkpointer: new AnnalsSaver(db) })

const config = { configurable: { thread_id: 'thread' }, durability: 'sync' }
for (;;) {
  const { values, tasks } = await graph.getState(config)
  // Not `next`: it leaves out a task whose writes are stored while the checkpoint that they lead to is not.
  if (tasks.length > 0) {
    say(`resume ${values.turn}`)
    await graph.invoke(null, config)
    continue
  }
  const turn = (values.turn ?? -1) + 1
  if (turn === Number(turns)) break
  await graph.invoke({ turn }, config)
  say(`turn ${turn}`)
}
await db.close()
say('end')
