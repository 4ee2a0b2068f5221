/** The parts of tape and of abstract-level's suite that the tests use. Neither has type declarations. */
declare module 'tape' {
  import type { EventEmitter } from 'node:events'

  interface Harness {
    createStream(options: { readonly objectMode: true }): EventEmitter
  }
  const tape: { createHarness(): Harness }
  export default tape
}

declare module 'abstract-level/test/index.js' {
  const suite: (options: {
    readonly test: import('tape').Harness
    readonly factory: (options?: object) => object
  }) => void
  export default suite
}
