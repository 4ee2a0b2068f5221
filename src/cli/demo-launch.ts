import type { Launch } from '../launch.ts'

/** The launch in examples/docs-launch, which is built into the package. */
interface DocsLaunch {
  readonly docsLaunch: Launch
  makeDemoRepository(folder: string): Promise<string>
  openWriter(): Promise<{ readonly baseUrl: string; close(): Promise<void> }>
}

export async function loadDocsLaunch(): Promise<DocsLaunch> {
  const load = (name: string): Promise<Partial<DocsLaunch>> =>
    import(new URL(`../examples/docs-launch/${name}.js`, import.meta.url).href)
  const [launch, repository, writer] = await Promise.all(['launch', 'demo-repository', 'writer'].map(load))
  return { ...launch, ...repository, ...writer } as DocsLaunch
}
