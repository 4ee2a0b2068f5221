/** The pages for people: files of the package, served as they are. Nobody's data are in them, so they need no token. */
export const PAGE_FILES: readonly (readonly [path: string, file: string, type: string, id: string])[] = [
  ['/', 'page.html', 'text/html', 'page'],
  ['/page/page.js', 'page.js', 'text/javascript', 'pageScript'],
  ['/page/api.js', 'api.js', 'text/javascript', 'pageRequests'],
  ['/page/run-list.js', 'run-list.js', 'text/javascript', 'pageRuns'],
  ['/page/run-detail.js', 'run-detail.js', 'text/javascript', 'pageRun'],
  ['/page/view.js', 'view.js', 'text/javascript', 'pageElements'],
  ['/page/page.css', 'page.css', 'text/css', 'pageStyle'],
  ['/page/icon.svg', 'icon.svg', 'image/svg+xml', 'pageIcon'],
  ['/docs', 'docs.html', 'text/html', 'docs'],
  ['/page/docs.js', 'docs.js', 'text/javascript', 'docsScript'],
  ['/page/docs.css', 'docs.css', 'text/css', 'docsStyle'],
]

export const PAGE_PATHS: readonly string[] = PAGE_FILES.map(([path]) => path)
