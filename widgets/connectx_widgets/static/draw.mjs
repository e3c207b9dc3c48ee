import { TOP, AXIS } from "./geometry.mjs";

// The timeline as SVG text. Colour is the connector, form is the state: never hue alone.

const MEANING = {
  starting: "start-up steps of a task: fencing, producer, configuration",
  running: "the task runs; the thin bar below the tasks is a connector",
  paused: "the task is paused",
  failed: "the task failed and waits for a restart",
  zombie: "the task still runs although it is no longer its worker's",
  fault: "a fault was injected",
  fenced: "a write was rejected because a newer task owns the data",
  aborted: "a transaction was aborted: nobody sees its records",
  rebalance: "the group divides its work anew",
};

export function escapeText(value) {
  return String(value).replace(/[&<>"']/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" })[c]);
}

const n = (value) => Math.round(value * 10) / 10;

export function svgText(drawn, key) {
  const parts = [defs(key)];
  drawn.rows.forEach((row, index) => {
    if (index % 2) parts.push(`<rect class="alt" x="0" y="${row.y}" width="${drawn.width}" height="${row.height}"/>`);
  });
  for (const band of drawn.bands) parts.push(bandText(band, drawn.bottom));
  for (const tick of drawn.axis) {
    const anchor = tick.x > drawn.width - 16 ? "end" : tick.x < 20 ? "start" : "middle";
    parts.push(`<path class="grid" d="M${n(tick.x)} ${TOP}V${drawn.bottom}"/>`);
    parts.push(`<text class="dim" x="${n(tick.x)}" y="${drawn.bottom + AXIS - 7}" text-anchor="${anchor}">${tick.text}</text>`);
  }
  for (const bar of drawn.bars) parts.push(barText(bar, key));
  for (const label of drawn.labels) parts.push(labelText(label));
  for (const mark of drawn.marks) parts.push(markText(mark, drawn.bottom));
  return parts.join("");
}

function defs(key) {
  return `<defs><pattern id="${key}z" width="6" height="6" patternUnits="userSpaceOnUse">`
    + '<path d="M-1 7L7 -1M-1 1L1 -1M5 7L7 5" stroke="currentColor" stroke-width="1.4"/></pattern>'
    + `<pattern id="${key}p" width="14" height="8" patternUnits="userSpaceOnUse">`
    + '<path d="M3 0V8M6 0V8" stroke="currentColor" stroke-width="1.2"/></pattern></defs>';
}

function bandText(band, bottom) {
  const title = escapeText(band.title);
  return `<g class="hot" data-key="band:${band.generation}" data-generation="${band.generation ?? ""}" data-say="${title}">`
    + `<rect class="band" x="${n(band.x)}" y="${TOP}" width="${n(band.width)}" height="${bottom - TOP}"/>`
    + `<text class="dim" x="${n(band.labelX)}" y="${TOP - 5}">${band.label}</text></g>`;
}

function barText(bar, key) {
  const task = escapeText(bar.task), title = escapeText(bar.title);
  return `<g class="hot" tabindex="-1" role="img" aria-label="${title}" data-key="${escapeText(bar.key)}" data-say="${title}"`
    + ` data-worker="${escapeText(bar.worker)}" data-task="${task}" data-event="${bar.seq}" data-state="${bar.state}">`
    + `${stateBar(bar.state, bar.x, bar.y, bar.width, bar.height, bar.colour, key)}</g>`;
}

export function stateBar(state, x, y, width, height, fill, key) {
  const box = `x="${n(x)}" y="${n(y)}" width="${n(width)}" height="${n(height)}" rx="2"`;
  switch (state) {
    case "running":
      return `<rect ${box} fill="${fill}"/>`;
    case "starting":
      return `<rect ${box} fill="${fill}" fill-opacity="0.12" stroke="${fill}" stroke-width="1.2"/>`;
    case "paused":
      return `<rect ${box} fill="${fill}" fill-opacity="0.3" stroke="${fill}"/><rect ${box} fill="url(#${key}p)" opacity="0.55"/>`;
    case "failed": {
      const arm = Math.min(height / 2 - 2, 5);
      const sign = width < 3 * arm ? "" : `<path class="m" d="${cross(x + width - arm - 3, y + height / 2, arm)}"/>`;
      return `<rect ${box} fill="${fill}" fill-opacity="0.22" stroke="${fill}" stroke-width="1.4"/>${sign}`;
    }
    default: {
      const edge = 'stroke="currentColor" stroke-width="1" stroke-dasharray="3 2"';
      return `<rect ${box} fill="${fill}" fill-opacity="0.35"/><rect ${box} fill="url(#${key}z)" ${edge} opacity="0.75"/>`;
    }
  }
}

function labelText(label) {
  const look = label.fill ? `fill="${label.fill}"` : `class="h${label.state === "zombie" ? " b" : ""}"`;
  return `<text ${look} x="${n(label.x)}" y="${n(label.y)}" pointer-events="none">${escapeText(label.text)}</text>`;
}

function markText(mark, bottom) {
  const title = escapeText(mark.title);
  const line = mark.worker === null ? `<path class="m" d="M${n(mark.x)} ${TOP}V${bottom}" stroke-dasharray="4 3" opacity="0.6"/>` : "";
  return `<g class="hot" tabindex="-1" role="img" aria-label="${title}" data-key="mark:${mark.seq}" data-say="${title}"`
    + ` data-worker="${escapeText(mark.worker ?? "")}" data-event="${mark.seq}" data-mark="${mark.mark}">`
    + `${line}${sign(mark.mark, mark.x, mark.y)}</g>`;
}

export function sign(kind, x, y) {
  if (kind === "fault") return `<path class="h" fill="currentColor" d="M${n(x)} ${n(y - 7)}l7 7l-7 7l-7 -7z"/>`;
  const path = kind === "fenced" ? `M${n(x - 4)} ${n(y - 8)}h8m-4 0v16` : cross(x, y, 5);
  return `<path class="o" d="${path}"/><path class="m${kind === "fenced" ? " x" : ""}" d="${path}"/>`;
}

function cross(x, y, arm) {
  const size = n(2 * arm);
  return `M${n(x - arm)} ${n(y - arm)}l${size} ${size}m-${size} 0l${size} -${size}`;
}

/** The legend: a line of the real shapes with their names. */
export function legendText(key) {
  const states = ["starting", "running", "paused", "failed", "zombie"];
  return Object.keys(MEANING).map((name) => {
    let shape = sign(name, 11, 8);
    if (states.includes(name)) shape = stateBar(name, 1, 3, 20, 10, "#56b4e9", key);
    if (name === "rebalance") shape = '<rect class="band" x="4" y="0" width="12" height="16"/>';
    return `<span class="cxp-legend" title="${MEANING[name]}"><svg class="cxt" width="22" height="16" aria-hidden="true">${shape}</svg>${name}</span>`;
  }).join("");
}
