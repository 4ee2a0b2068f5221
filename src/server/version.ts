import { createRequire } from 'node:module'

/** The manifest of the package is two folders above this file, both in src and in dist. */
const { version } = createRequire(import.meta.url)('../../package.json') as { readonly version: string }

export const VERSION: string = version
