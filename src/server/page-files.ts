/** The words of `core/vocabulary.ts` as a module. The server generates it, so that pages and command line cannot differ. */
export const VOCABULARY_PATH = '/page/vocabulary.js'

/** The files of the web pages. They contain no data of users, so they need no token. */
export const PAGE_FILES: readonly (readonly [path: string, file: string, type: string, id: string])[] = [
  ['/', 'page.html', 'text/html', 'page'],
  ['/page/page.js', 'page.js', 'text/javascript', 'pageScript'],
  ['/page/api.js', 'api.js', 'text/javascript', 'pageRequests'],
  ['/page/run-list.js', 'run-list.js', 'text/javascript', 'pageRuns'],
  ['/page/run-detail.js', 'run-detail.js', 'text/javascript', 'pageRun'],
  ['/page/view.js', 'view.js', 'text/javascript', 'pageElements'],
  [VOCABULARY_PATH, 'vocabulary.js', 'text/javascript', 'pageVocabulary'],
  ['/page/page.css', 'page.css', 'text/css', 'pageStyle'],
  ['/page/icon.svg', 'icon.svg', 'image/svg+xml', 'pageIcon'],
  ['/docs', 'docs.html', 'text/html', 'docs'],
  ['/page/docs.js', 'docs.js', 'text/javascript', 'docsScript'],
  ['/page/docs.css', 'docs.css', 'text/css', 'docsStyle'],
]

export const PAGE_PATHS: readonly string[] = PAGE_FILES.map(([path]) => path)
