import assert from 'node:assert/strict'

/** A store that answers wrongly has no speed. Run against every contestant before it is measured. */
export async function checkAnswers(store) {
  const places = Array.from({ length: 20 }, (_, i) => store.at('check', `key-${String(i).padStart(3, '0')}`))
  await store.put(places[0], 'first')
  assert.equal(store.valueOf(await store.get(places[0])), 'first')
  await store.putMany(places.map((place, i) => [place, `value ${i}`]))
  await store.put(store.at('check2', 'key-000'), 'of another scope')
  const listed = await store.list(places[15], 100)
  assert.deepEqual(
    listed.map(entry => entry.value ?? entry[1]),
    [15, 16, 17, 18, 19].map(i => `value ${i}`),
  )
  await store.removeMany([places[0]])
  assert.equal(store.valueOf(await store.get(places[0])), undefined)
  if (store.cas) await checkCas(store)
  if (store.append) await checkAppend(store)
}

async function checkCas(store) {
  const place = store.at('check', 'cell')
  const first = await store.createCell(place, 'one')
  const second = await store.cas(place, first, 'two')
  assert.ok(second)
  assert.ok(!(await store.cas(place, first, 'lost')))
  assert.ok(await store.cas(place, second, 'three'))
  assert.equal(store.valueOf(await store.get(place)), 'three')
}

async function checkAppend(store) {
  const first = await store.append('check', 'body', 'a')
  const second = await store.append('check', 'body', 'b')
  const again = await store.append('check', 'body', 'a')
  assert.deepEqual([first.sequence, second.sequence, again.sequence], [0, 1, 0])
  assert.deepEqual([first.duplicate, second.duplicate, again.duplicate], [false, false, true])
  assert.equal(again.hash, first.hash)
  assert.notEqual(second.hash, first.hash)
  const many = await store.appendMany('check', [
    ['body', 'b'],
    ['body', 'c'],
  ])
  assert.deepEqual(
    many.map(({ sequence }) => sequence),
    [1, 2],
  )
}
