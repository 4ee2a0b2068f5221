import { existsSync } from 'node:fs'
import { resolve } from 'node:path'
import { pathToFileURL } from 'node:url'
import { AnnalsError } from '../index.ts'
import type { Launch } from '../launch.ts'

/** The launches that a user's module exports, under any name. */
export async function loadLaunches(path: string): Promise<readonly Launch[]> {
  const file = resolve(path)
  if (!existsSync(file)) throw refused(path, 'there is no such file')
  if (/\.[cm]?ts$/.test(file)) throw refused(path, 'compile it first and pass the .js file')
  const module = (await import(pathToFileURL(file).href).catch((error: unknown) => {
    throw refused(path, error instanceof Error ? error.message : String(error))
  })) as Readonly<Record<string, unknown>>
  const launches = Object.values(module).filter(isLaunch)
  if (launches.length === 0) throw refused(path, 'it exports no launch; export what defineLaunch returns')
  return launches
}

function isLaunch(value: unknown): value is Launch {
  const { name, version, nodes, workers } = (value ?? {}) as Partial<Launch>
  return (
    typeof name === 'string' && typeof version === 'string' && nodes instanceof Map && workers instanceof Map
  )
}

function refused(path: string, why: string): AnnalsError {
  return new AnnalsError('INVALID_ARGUMENT', `cannot load ${path}: ${why}`, { path })
}
