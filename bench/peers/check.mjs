import assert from 'node:assert/strict'

/** Checks a contestant's answers before it is measured, because the speed of a wrong answer means nothing. */
export async function checkAnswers(store) {
  if (store.put) await checkEntries(store)
  if (store.cas) await checkCas(store)
  if (store.append) await checkAppend(store)
  if (store.appendOnce) await checkAppendOnce(store)
}

async function checkEntries(store) {
  const name = i => `key-${String(i).padStart(3, '0')}`
  const places = Array.from({ length: 20 }, (_, i) => store.at('check', name(i)))
  await store.put(places[0], { first: true })
  assert.deepEqual(await store.get(places[0]), { first: true })
  await store.putMany(places.map((place, i) => [place, { i }]))
  await store.put(store.at('check2', 'key-000'), 'of another scope')
  if (store.list) {
    const behind = [16, 17, 18, 19]
    assert.deepEqual(await store.list(places[15], 100), behind.map(name))
    assert.deepEqual(
      await store.entries(places[15], 100),
      behind.map(i => [name(i), { i }]),
    )
  }
  await store.removeMany([places[0]])
  assert.equal(await store.get(places[0]), undefined)
}

async function checkCas(store) {
  const place = store.at('check', 'cell')
  const first = await store.createCell(place, 'one')
  const second = await store.cas(place, first, 'two')
  assert.equal(second, first + 1)
  await assert.rejects(store.cas(place, first, 'lost'))
  assert.equal(await store.cas(place, second, 'three'), second + 1)
}

async function checkAppend(store) {
  const first = await store.append('check', 'note', { n: 0 })
  const [second, third] = await store.appendMany('check', [
    { type: 'note', payload: { n: 1 } },
    { type: 'other', payload: ['n', 2] },
  ])
  assert.deepEqual([first.sequence, second.sequence, third.sequence], [0, 1, 2])
  const read = await store.read('check', 1)
  assert.deepEqual(
    [read.sequence, read.type, read.payload, read.prevHash, read.hash],
    [1, 'note', { n: 1 }, first.hash, second.hash],
  )
  assert.ok(Math.abs(Date.now() - read.timestamp) < 60_000)
  const range = await store.readRange('check', 1, 3)
  assert.deepEqual(range[0], read)
  assert.deepEqual(range[1].payload, ['n', 2])
  assert.equal(range[1].hash, third.hash)
  assert.equal(range.length, 2)
  assert.equal(await store.read('check', 3), undefined)
}

async function checkAppendOnce(store) {
  const first = await store.appendOnce('check', { body: 1 }, 'a')
  const second = await store.appendOnce('check', { body: 1 }, 'b')
  const again = await store.appendOnce('check', { body: 1 }, 'a')
  assert.deepEqual([first.sequence, second.sequence, again.sequence], [0, 1, 0])
  assert.deepEqual([first.duplicate, second.duplicate, again.duplicate], [false, false, true])
  assert.equal(again.hash, first.hash)
  assert.notEqual(second.hash, first.hash)
  const many = await store.appendManyOnce('check', [
    [{ body: 1 }, 'b'],
    [{ body: 1 }, 'c'],
  ])
  assert.deepEqual(
    many.map(({ sequence }) => sequence),
    [1, 2],
  )
}
