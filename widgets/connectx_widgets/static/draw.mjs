// The timeline as SVG text: shapes of the kernel (history/render/shapes.py) in the places of the layout.

export function escapeText(value) {
  return String(value).replace(/[&<>"']/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" })[c]);
}

const n = (value) => Math.round(value * 10) / 10;

const fill = (shape, places) => shape.replace(/\{(\w+)\}/g, (_, name) => typeof places[name] === "number" ? n(places[name]) : places[name]);

export function svgText(drawn, key, look) {
  const { shapes, top } = look, { bottom } = drawn, height = bottom - top;
  const parts = [fill(look.patterns, { key })];
  drawn.rows.forEach((row, index) => {
    if (index % 2) parts.push(`<rect class="alt" x="0" y="${row.y}" width="${drawn.width}" height="${row.height}"/>`);
  });
  for (const band of drawn.bands) {
    const title = escapeText(band.title), shape = fill(shapes.rebalance, { ...band, y: top, height });
    parts.push(`<g class="hot" role="img" aria-label="${title}" data-key="band:${band.generation}" data-generation="${band.generation ?? ""}" data-at="${band.from}">${shape}`
      + `<text class="dim" x="${n(band.labelX)}" y="${top - 5}">${band.label}</text></g>`);
  }
  for (const tick of drawn.axis) {
    const anchor = tick.x > drawn.width - 16 ? "end" : tick.x < 20 ? "start" : "middle";
    parts.push(`<path class="grid" d="M${n(tick.x)} ${top}V${bottom}"/>`);
    parts.push(`<text class="dim" x="${n(tick.x)}" y="${bottom + look.axis - 7}" text-anchor="${anchor}">${tick.text}</text>`);
  }
  for (const bar of drawn.bars) {
    parts.push(hot(bar.key, { ...bar, at: bar.from }, `data-task="${escapeText(bar.task)}" data-state="${bar.state}"`, fill(shapes[bar.state], { ...bar, key })));
  }
  for (const label of drawn.labels) {
    const how = label.fill ? `fill="${label.fill}"` : `class="h${label.state === "zombie" ? " b" : ""}"`;
    parts.push(`<text ${how} x="${n(label.x)}" y="${n(label.y)}" pointer-events="none">${escapeText(label.text)}</text>`);
  }
  for (const track of drawn.tracks) parts.push(trackText(track, drawn.width));
  for (const guide of drawn.guides) {
    parts.push(`<path class="guide${guide.mark === "fenced" ? " x" : ""}" data-guide="${guide.mark}" d="M${n(guide.x)} ${drawn.rowsBottom}V${bottom}"/>`);
  }
  for (const mark of drawn.marks) {
    const line = mark.worker === null ? fill(shapes.everywhere, { ...mark, y: top, height }) : "";
    parts.push(hot(`mark:${mark.seq}`, mark, `data-mark="${mark.mark}"`, line + fill(shapes[mark.mark], mark)));
  }
  return parts.join("");
}

/** A shape that shows its sentence on hover, and by the arrow keys. */
function hot(key, { title, worker, seq, at }, data, shape) {
  const said = escapeText(title);
  return `<g class="hot" tabindex="-1" role="img" aria-label="${said}" data-key="${escapeText(key)}"`
    + ` data-worker="${escapeText(worker ?? "")}" data-event="${seq}" data-at="${at}" ${data}>${shape}</g>`;
}

function trackText({ name, y, height, lines }, width) {
  const drawn = lines.map(({ connector, peak, colour, path }) => {
    const said = escapeText(`${connector ?? "others"}: at most ${Math.round(peak).toLocaleString("en")} ${name} here`);
    return `<path class="line${colour ? "" : " others"}" data-track="${name}" data-line="${escapeText(connector ?? "others")}" d="${path}"${colour ? ` stroke="${colour}"` : ""}><title>${said}</title></path>`;
  });
  return `<path class="edge" d="M0 ${y + height - 1}H${width}"/>${drawn.join("")}`;
}

/** The legend: a line of the real shapes with their names. */
export function legendText(key, look) {
  return look.legend.map(({ name, meaning, sample }) =>
    `<span class="cxp-legend" title="${meaning}"><svg class="cxt" width="22" height="16" aria-hidden="true">${fill(sample, { key })}</svg>${name}</span>`).join("");
}
