import { createRequire } from 'node:module'

/** Of the package: its manifest lies two folders above this file, in the sources as in what is published. */
const { version } = createRequire(import.meta.url)('../../package.json') as { readonly version: string }

export const VERSION: string = version
