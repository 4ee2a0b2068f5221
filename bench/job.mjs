/**
 * Runs a part of a measurement in its own process: `node job.mjs <module> <function> <json>` imports the module, calls the
 * function, and sends its result to the parent process.
 */
const [module, name, json] = process.argv.slice(2)

process.on('disconnect', () => process.exit(1))

try {
  const functions = await import(new URL(module, import.meta.url).href)
  const result = await functions[name](JSON.parse(json))
  process.send({ result: result ?? null }, () => process.exit(0))
} catch (error) {
  process.send({ error: error.stack }, () => process.exit(1))
}
