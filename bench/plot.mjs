/** Draws the ratios as horizontal bars on a logarithmic scale, with a line at 1× and a mark at each goal. */

const WIDTH = 980
const LABELS = 470
const RIGHT = 70
const ROW = 22
const TOP = 66
const LOWEST = 0.5
const COLOURS = { met: '#2f7d4f', missed: '#b8433a', free: '#7d8896' }

export function plot(rows) {
  const bars = rows.filter(row => row.ratio !== undefined)
  const highest = Math.max(4, ...bars.map(({ ratio, must }) => Math.max(ratio, must?.atLeast ?? 0)))
  const scale = (WIDTH - LABELS - RIGHT) / Math.log2(highest / LOWEST)
  const x = ratio => LABELS + Math.log2(Math.max(ratio, LOWEST) / LOWEST) * scale
  const height = TOP + bars.length * ROW + 16
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${WIDTH}" height="${height}" viewBox="0 0 ${WIDTH} ${height}" font-family="system-ui, sans-serif" font-size="12" fill="#222">`,
    `<rect width="${WIDTH}" height="${height}" fill="#fff"/>`,
    `<text x="12" y="22" font-size="15" font-weight="600">Annals against its peers: times as fast</text>`,
    ...legend(),
    ...gridLines(highest).flatMap(ratio => gridLine(ratio, x(ratio), height)),
    ...bars.flatMap((row, i) => bar(row, x, TOP + i * ROW)),
    '</svg>',
    '',
  ].join('\n')
}

function legend() {
  const parts = [
    ['met', 'goal met'],
    ['missed', 'goal missed'],
    ['free', 'no goal'],
  ].flatMap(([kind, text], i) => [
    `<rect x="${12 + i * 100}" y="34" width="11" height="11" fill="${COLOURS[kind]}"/>`,
    `<text x="${28 + i * 100}" y="44">${text}</text>`,
  ])
  return [
    ...parts,
    '<line x1="318" x2="318" y1="32" y2="47" stroke="#000" stroke-width="2.5"/><text x="326" y="44">must</text>',
  ]
}

function gridLines(highest) {
  const lines = []
  for (let ratio = LOWEST; ratio <= highest; ratio *= 2) lines.push(ratio)
  return lines
}

function gridLine(ratio, at, height) {
  const one = ratio === 1
  return [
    `<line x1="${at.toFixed(1)}" x2="${at.toFixed(1)}" y1="${TOP - 6}" y2="${height - 12}" stroke="${one ? '#222' : '#ddd'}" stroke-width="${one ? 1.5 : 1}"/>`,
    `<text x="${at.toFixed(1)}" y="${TOP - 10}" text-anchor="middle" fill="${one ? '#222' : '#777'}">${ratio}×</text>`,
  ]
}

function bar({ title, ours, theirs, ratio, must }, x, y) {
  const label = `${title}${ours.name === 'annals' ? '' : ` (${ours.name.replace('annals, ', '')})`} · ${theirs.name}`
  const kind = must === undefined ? 'free' : ratio >= must.atLeast ? 'met' : 'missed'
  const width = Math.max(1, x(ratio) - LABELS)
  const mark = must === undefined ? [] : [x(must.atLeast).toFixed(1)]
  return [
    `<text x="${LABELS - 8}" y="${y + 14}" text-anchor="end">${escapeText(label)}</text>`,
    `<rect x="${LABELS}" y="${y + 3}" width="${width.toFixed(1)}" height="${ROW - 8}" fill="${COLOURS[kind]}"/>`,
    ...mark.map(
      at => `<line x1="${at}" x2="${at}" y1="${y}" y2="${y + ROW - 2}" stroke="#000" stroke-width="2.5"/>`,
    ),
    `<text x="${(LABELS + width + 7).toFixed(1)}" y="${y + 14}">${ratio < 10 ? ratio.toFixed(2) : Math.round(ratio)}×</text>`,
  ]
}

function escapeText(text) {
  return text.replace(/&/g, '&amp;').replace(/</g, '&lt;')
}
