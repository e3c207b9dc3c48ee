// The page's model of the cluster, and its position in the visible window. Pure. Times in milliseconds.
// Lanes, sizes and shapes come from the kernel (history/render): here are the window, the clock and the width.

const SILENT_MS = 12_000, LEAST_MS = 15_000;
const SPARK_MS = 60_000;
const READ_MS = 1000, POINTS = 1800, BIN = 3, LINES = 7;
const TALL = 350, FOLDED_LEAST = 20;
const ROW_LEAST = 58; // three lines of text in the gutter
const COVERED = 4; // pixels between two signs

// ------------------------------------------------------------------------------------------------- what is known

export function emptyStore() {
  return { elements: new Map(), rates: new Map(), tracks: new Map(), kinds: /** @type {Map<string, any[]> | null} */ (null), seq: -1, skew: 0, heard: 0, live: false, ended: false, heartbeats: null };
}

/** Take a message of the kernel; "resync" when something in between was missed. Taking one twice changes nothing. */
export function take(store, message, pageNow) {
  store.kinds = null;
  if (typeof message.now === "number") {
    store.skew = message.now - pageNow;
    store.heard = pageNow;
    store.live = true;
  }
  if (message.kind === "ended") store.ended = true;
  if (message.kind === "beat" && message.heartbeats) store.heartbeats = { at: message.now, of: message.heartbeats };
  if (message.kind === "answer" && message.id === "series") takeSeries(store, message.value);
  if (message.kind === "all") {
    if (message.first) store.elements = new Map();
    put(store, message.set, message.now);
    if (message.last) store.seq = message.seq;
    return "taken";
  }
  if (message.kind !== "change" || message.seq <= store.seq) return "taken";
  if (message.base !== store.seq) return "resync";
  for (const key of message.drop) store.elements.delete(key);
  put(store, message.set, message.now);
  put(store, Object.fromEntries(Object.entries(message.patch ?? {}).map(([key, fields]) => [key, { ...store.elements.get(key), ...fields }])), message.now);
  store.seq = message.seq;
  return "taken";
}

function put(store, elements, now) {
  for (const [key, element] of Object.entries(elements)) {
    store.elements.set(key, element);
    if (element.kind !== "connector" || element.rate === undefined) continue;
    follow(store, element, now);
    const rates = (store.rates.get(element.name) ?? []).filter(({ at }) => at > now - 2 * SPARK_MS);
    store.rates.set(element.name, [...rates, { at: now, rate: element.rate }]);
  }
}

/** Throughput and lag of before this page was opened. */
function takeSeries(store, series) {
  for (const [name, past] of Object.entries(series)) {
    const track = trackOf(store, name);
    for (const kind of ["rate", "lag"]) {
      const first = track[kind][0]?.at ?? Infinity;
      track[kind] = [...past[kind].map(([at, value]) => ({ at, value })).filter(({ at }) => at < first), ...track[kind]];
    }
  }
}

function trackOf(store, name) {
  if (!store.tracks.has(name)) store.tracks.set(name, { rate: [], lag: [], moved: null, at: 0, every: READ_MS });
  return store.tracks.get(name);
}

/** Counts are read once a second, or every so many milliseconds, and sent when they have changed: a longer silence was one reading with records after others without. */
function follow(store, { name, moved, lag, every = READ_MS }, now) {
  const track = trackOf(store, name);
  track.every = every;
  if (moved !== track.moved) {
    if (track.moved !== null && moved > track.moved) {
      const quiet = now - track.at > 1.6 * every;
      if (quiet) track.rate.push({ at: now - every, value: 0 });
      track.rate.push({ at: now, value: (1000 * (moved - track.moved)) / (quiet ? every : Math.max(now - track.at, every / 2)) });
    }
    [track.moved, track.at] = [moved, now];
  }
  if (lag !== undefined && lag !== track.lag.at(-1)?.value) track.lag.push({ at: now, value: lag });
  for (const points of [track.rate, track.lag]) if (points.length > POINTS) points.splice(0, points.length - POINTS);
}

/** The rates of a connector in the last minute as a path in a box; empty without any. Whole seconds, so that it rests. */
export function sparkline(rates, now, width, height) {
  const end = Math.ceil(now / 1000) * 1000, most = Math.max(...rates.map(({ rate }) => rate), 0);
  if (!most) return "";
  const x = (at) => Math.round(Math.max(1 - (end - at) / SPARK_MS, 0) * width), y = (rate) => Math.round((1 - rate / most) * (height - 2)) + 1;
  const steps = rates.filter(({ at }, number) => (rates[number + 1]?.at ?? end) > end - SPARK_MS && at <= end);
  return steps.map(({ at, rate }, number) => `${number ? `H${x(at)}V` : `M${x(at)} `}${y(rate)}`).join("") + `H${width}`;
}

/** Take the snapshot that a page finds when it opens; "resync" when it does not hold everything. */
export function takeSnapshot(store, snapshot, pageNow) {
  if (snapshot?.ended) store.ended = true;
  if (!snapshot || typeof snapshot.seq !== "number" || snapshot.seq <= store.seq) return "taken";
  store.kinds = null;
  store.elements = new Map(Object.entries(snapshot.elements));
  store.seq = snapshot.seq;
  if (!store.live) [store.heard, store.skew] = [pageNow, snapshot.now - pageNow];
  return snapshot.whole ? "taken" : "resync";
}

export function ofKind(store, kind) {
  if (!store.kinds) {
    store.kinds = new Map();
    for (const element of store.elements.values()) {
      if (!store.kinds.has(element.kind)) store.kinds.set(element.kind, []);
      store.kinds.get(element.kind).push(element);
    }
  }
  return [...(store.kinds.get(kind) ?? [])];
}

/** What the details of a connector depend on, as text: its configuration as it was read, its state and its tasks'. */
export function currentState(store, connector) {
  const own = store.elements.get(`connector:${connector}`);
  const tasks = ofKind(store, "task").filter((task) => task.connector === connector);
  return JSON.stringify([own, ...tasks].map((work) => work && [work.task, work.state, work.since, work.worker, work.read, work.why]));
}

/** The cluster's time on this page; it stands still when nothing happens, or when the kernel is silent though it does. */
export function clock(store, pageNow) {
  const heard = store.heard + store.skew, silent = pageNow - store.heard;
  const open = ofKind(store, "bar").some(isOpen) || ofKind(store, "row").some((row) => !row.gone);
  if (store.ended || !open || !store.live) return { now: heard, still: true, silent: 0 };
  if (silent > SILENT_MS) return { now: heard, still: true, silent };
  return { now: pageNow + store.skew, still: false, silent: 0 };
}

function isOpen(bar) {
  return bar.parts.at(-1).to === null;
}

/** A worker's heartbeat: its age when the kernel last reported it, or since when none was answered. */
export function heartbeat(row, heartbeats, now) {
  if (row.gone) return null;
  if (row.late != null) return { late: true, text: `no heartbeat for ${duration(1000 * Math.floor(Math.max(now - row.late, 0) / 1000))}` };
  const at = heartbeats?.of[row.worker];
  return at === undefined ? null : { late: false, text: `heartbeat ${duration(Math.max(heartbeats.at - at, 0))} ago` };
}

/** How many tasks a worker runs, and how many zombies are left on it. */
export function held(store, worker) {
  const open = ofKind(store, "bar").filter((bar) => bar.worker === worker && !bar.thin && isOpen(bar));
  const zombies = open.filter((bar) => bar.parts.at(-1).state === "zombie").length;
  return { tasks: open.length - zombies, zombies };
}

export function firstMoment(store) {
  let first = Infinity;
  for (const element of store.elements.values()) {
    if (element.kind === "mark") first = Math.min(first, element.at);
    if (element.kind === "band") first = Math.min(first, element.from);
    if (element.kind === "bar") first = Math.min(first, element.parts[0].from);
  }
  return first;
}

/** The span to draw: `view.span` milliseconds (null: all) up to `view.end` (null: now). */
export function windowOf(store, view, now) {
  const first = firstMoment(store);
  const to = view.end ?? now;
  const whole = Math.max(to - first, LEAST_MS);
  const span = view.span === null || view.end === null ? Math.min(view.span ?? whole, whole) : view.span;
  return { from: to - span, to, first: Number.isFinite(first) ? first : to - span, past: view.end !== null };
}

// -------------------------------------------------------------------------------------------------------- words

export function duration(ms) {
  if (ms < 100) return `${Math.round(ms)} ms`;
  if (ms < 59_950) return `${(ms / 1000).toFixed(1)} s`;
  const seconds = Math.round(ms / 1000);
  return seconds % 60 ? `${Math.floor(seconds / 60)} min ${seconds % 60} s` : `${seconds / 60} min`;
}

/** The time of day of a moment, where the page is. */
export function clockText(ms) {
  return new Date(ms).toLocaleTimeString("en-GB");
}

export function sentence(part, now) {
  const lasted = Math.max((part.to ?? now) - part.from, 0);
  return `${part.what}, ${part.to === null ? "for" : "lasted"} ${duration(lasted)}${part.why}`;
}

/** At most `limit` characters; the middle goes, so that a task's number at the end stays. */
export function shorten(text, limit) {
  if (text.length <= limit) return text;
  if (limit <= 3) return text.slice(0, Math.max(limit, 0));
  const tail = Math.min(Math.floor(limit / 2), Math.max(3, Math.floor(limit / 3)));
  return `${text.slice(0, limit - tail - 1)}…${text.slice(-tail)}`;
}

// ------------------------------------------------------------------------------------------------------- layout

/** Everything to draw between `window.from` and `window.to` on `width` pixels, in the sizes of `look`. */
export function layout(store, window, width, now, given, { only = /** @type {Set<string> | null} */ (null), expanded = new Set(), dead = false } = {}) {
  const x = (ms) => ((Math.min(Math.max(ms ?? now, window.from), window.to) - window.from) / Math.max(window.to - window.from, 1)) * width;
  const meets = (from, to) => from <= window.to && (to ?? now) >= window.from;
  const shows = (bar) => meets(bar.parts[0].from, bar.parts.at(-1).to) && (only === null || only.has(connectorOf(bar)));
  const bars = ofKind(store, "bar").filter(shows), marks = ofKind(store, "mark").filter((mark) => meets(mark.at, mark.at));
  const all = ofKind(store, "row").sort((a, b) => a.order - b.order), busy = new Set([...bars, ...marks].map(({ worker }) => worker));
  const rows = all.filter((row) => dead || !row.gone || busy.has(row.worker));
  const lanes = new Map(rows.map((row) => [row.worker, new Set(bars.filter((bar) => bar.worker === row.worker && !bar.thin).map((bar) => bar.lane)).size]));
  const natural = [...lanes.values()].reduce((sum, count) => sum + Math.max(count * given.lane + 4 * given.rowPad, ROW_LEAST), 0);
  const small = natural > TALL ? dense(given, TALL, [...lanes.values()]) : null;
  const drawn = /** @type {any} */ ({ rows: [], bars: [], labels: [], marks: [], bands: [], axis: [], height: 0, width });
  drawn.dense = small !== null;
  drawn.hidden = all.length - rows.length;
  let y = given.top;
  for (const row of rows) {
    const folded = small !== null && !expanded.has(row.worker), look = folded ? small : given;
    const own = bars.filter((bar) => bar.worker === row.worker);
    const lanes = lanesOf(own.filter((bar) => !bar.thin)), thin = folded ? [] : lanesOf(own.filter((bar) => bar.thin));
    const height = Math.max(lanes.length * look.lane + thin.length * look.thinLane + 2 * look.rowPad, folded ? FOLDED_LEAST : ROW_LEAST);
    drawn.rows.push({ ...row, y, height, folded, ...held(store, row.worker), pulse: heartbeat(row, store.heartbeats, now) });
    for (const bar of folded ? own.filter((bar) => !bar.thin) : own) {
      const top = y + look.rowPad + (bar.thin
        ? lanes.length * look.lane + thin.indexOf(bar.lane) * look.thinLane + (look.thinLane - look.thin) / 2
        : lanes.indexOf(bar.lane) * look.lane + (look.lane - look.bar) / 2);
      const parts = bar.parts.filter((part) => meets(part.from, part.to)).map((part) => ({
        key: `${bar.worker}:${part.seq}:${bar.label}`, worker: bar.worker, task: bar.label, seq: part.seq, state: part.state, from: part.from,
        colour: bar.colour, text: bar.text, x: x(part.from), y: top, width: Math.max(x(part.to) - x(part.from), 1.5),
        height: bar.thin ? look.thin : look.bar, title: sentence(part, now), open: part.to === null,
      }));
      drawn.bars.push(...parts);
      if (!bar.thin && look.bar >= given.bar) drawn.labels.push(...labels(bar, parts, top, look));
    }
    for (const mark of marks.filter((mark) => mark.worker === row.worker)) {
      const lane = lanes.indexOf(mark.lane);
      drawn.marks.push({ ...mark, x: x(mark.at), y: lane < 0 ? y + height / 2 : y + look.rowPad + (lane + 0.5) * look.lane });
    }
    y += height;
  }
  const look = given;
  for (const mark of marks.filter((mark) => mark.worker === null)) drawn.marks.push({ ...mark, x: x(mark.at), y: look.top });
  drawn.rowsBottom = y;
  drawn.tracks = tracks(store, window, now, x, width, look, y, only);
  y += drawn.tracks.length * look.track;
  drawn.guides = drawn.tracks.length ? drawn.marks.filter(({ mark }) => mark !== "aborted") : [];
  drawn.bottom = y;
  drawn.height = y + look.axis;
  drawn.marks = uncovered(drawn.marks).sort((a, b) => Number(a.mark === "fenced") - Number(b.mark === "fenced"));
  drawn.bands = bands(ofKind(store, "band").filter((band) => meets(band.from, band.to)), x, look);
  drawn.axis = axis(window, x, width, now, look);
  return drawn;
}

/** Without marks that lie under others of their kind; a fault is never left out. */
function uncovered(marks) {
  const last = new Map();
  return marks.sort((a, b) => a.x - b.x).filter((mark) => {
    const place = `${mark.mark} ${mark.lane} ${mark.worker}`;
    if (mark.mark !== "fault" && mark.x - last.get(place) < COVERED) return false;
    last.set(place, mark.x);
    return true;
  });
}

/** The sizes with which rows of so many lanes fit into a height, without labels and bars of connectors. */
function dense(look, height, lanes) {
  const count = lanes.reduce((sum, own) => sum + own, 0), lane = Math.max(Math.min(Math.floor((2 * (height - 4 * lanes.length)) / Math.max(count, 1)) / 2, look.lane - 6), 1.5);
  return { ...look, lane, bar: lane > 3 ? lane - 1 : lane, rowPad: 2 };
}

/** The connector of a bar, which is named after it or its task. */
function connectorOf({ thin, label }) {
  return thin ? label : label.slice(0, label.lastIndexOf("-"));
}

/** The lanes that are in use, from the top. */
function lanesOf(bars) {
  return [...new Set(bars.map((bar) => bar.lane))].sort((a, b) => a - b);
}

/** The task's name in the first part with room for it, and in a zombie's. */
function labels(bar, parts, top, look) {
  const needed = bar.label.length * look.char + 8;
  const roomy = parts.filter((part) => part.width >= needed);
  const widest = [...parts].sort((a, b) => b.width - a.width)[0];
  const chosen = roomy.length ? roomy.slice(0, 1) : widest && widest.width >= 5 * look.char + 8 ? [widest] : [];
  chosen.push(...parts.filter((part) => !chosen.includes(part) && part.state === "zombie" && part.width >= 10 * look.char));
  return chosen.map((part) => ({
    x: part.x + 4, y: top + look.bar - 3.5, state: part.state, fill: part.state === "running" ? part.text : null,
    text: shorten(bar.label, Math.floor((part.width - 8) / look.char)),
  }));
}

function bands(shown, x, look) {
  let labelEnd = 0;
  return shown.sort((a, b) => a.from - b.from).map((band) => {
    const left = x(band.from);
    let label = band.generation === null ? "gen ?" : `gen ${band.generation}`;
    if (left < labelEnd) label = label.replace("gen ", "");
    const labelX = Math.min(Math.max(left, labelEnd), x(Infinity) - label.length * look.char);
    if (labelX < labelEnd || labelX > left + 4 * look.char) label = "";
    else labelEnd = labelX + label.length * look.char + 5;
    return { ...band, x: left, width: Math.max(x(band.to) - left, 2), label, labelX };
  });
}

function axis(window, x, width, now, look) {
  const span = Math.max(window.to - window.from, 1) / 1000;
  const step = look.steps.find((step) => span / step <= Math.max(width / 90, 2)) ?? look.steps.at(-1);
  if (window.past) return clockTicks(window, x, step);
  const ticks = [];
  for (let offset = Math.max(0, Math.ceil((now - window.to) / 1000 / step) * step); now - offset * 1000 >= window.from; offset += step) {
    const back = Math.round(offset * 10) / 10;
    const text = back === 0 ? "now" : step >= 60 ? `−${back / 60} min` : `−${back} s`;
    ticks.push({ x: x(now - offset * 1000), text });
    if (ticks.length > 200) break;
  }
  return ticks;
}

/** Times of day, for a window of the past. */
function clockTicks(window, x, step) {
  const step_ms = Math.max(step, 1) * 1000, ticks = [];
  for (let at = Math.ceil(window.from / step_ms) * step_ms; at <= window.to && ticks.length < 200; at += step_ms) ticks.push({ x: x(at), text: clockText(at) });
  return ticks;
}

// ------------------------------------------------------------------------------------------------------- tracks

/** Throughput and lag below the rows: lines of the connectors with the highest peaks, and one of all others together. */
function tracks(store, window, now, x, width, look, y, only) {
  const step = (BIN * Math.max(window.to - window.from, 1)) / width, start = Math.floor(window.from / step), count = Math.ceil(window.to / step) - start;
  const kinds = /** @type {[string, string, boolean][]} */ ([["records/s", "rate", false], ["lag", "lag", true]]);
  return kinds.flatMap(([name, kind, holds]) => {
    const known = [...store.tracks].filter(([connector]) => store.elements.has(`connector:${connector}`) && (only === null || only.has(connector))).sort(([a], [b]) => (a < b ? -1 : 1))
      .map(([connector, track]) => ({ connector, grid: gridOf(segments(around(track[kind], window), holds, track.every, now), holds, start, step, count) }))
      .filter(({ grid }) => grid.some((value) => !Number.isNaN(value)))
      .map((line) => ({ ...line, peak: line.grid.reduce((most, value) => Math.max(most, value || 0), 0) }));
    if (!known.length) return [];
    const ranked = [...known].sort((a, b) => b.peak - a.peak), rest = ranked.slice(LINES), lines = known.filter((line) => !rest.includes(line));
    if (rest.length) {
      const both = (sum, value) => (Number.isNaN(sum) ? value : sum + (value || 0));
      const grid = rest[0].grid.map((_, bin) => rest.reduce((sum, line) => both(sum, line.grid[bin]), NaN));
      lines.push({ connector: null, grid, peak: grid.reduce((most, value) => Math.max(most, value || 0), 0) });
    }
    const peak = Math.max(...lines.map((line) => line.peak)), top = y;
    y += look.track;
    const height = (value) => top + look.track - 1 - (value / Math.max(peak, 1)) * (look.track - look.trackPad - 1);
    return [{ name, y: top, height: look.track, peak, lines: lines.map(({ connector, grid, peak: own }) => ({
      connector, peak: own, colour: store.elements.get(`connector:${connector}`)?.colour || null, path: steps(grid, start, step, x, height),
    })) }];
  });
}

/** The points of a window, and one before and after it. */
function around(points, { from, to }) {
  let first = points.length;
  while (first > 0 && points[first - 1].at >= from) first -= 1;
  const end = points.findIndex(({ at }, number) => number >= first && at > to);
  return points.slice(Math.max(first - 1, 0), end < 0 ? undefined : end + 1);
}

/** [from, to, number] of each point: a lag lasts until the next one, a rate since the one before. */
function segments(points, holds, every, now) {
  if (holds) return points.map(({ at, value }, n) => [at, points[n + 1]?.at ?? now, value]);
  const found = points.map(({ at, value }, n) => [points[n - 1]?.at ?? at - every, at, value]), last = points.at(-1)?.at;
  return last !== undefined && now - last > 2.5 * every ? [...found, [last, now, 0]] : found;
}

/** In each bin the highest lag, or the mean rate; NaN where nothing is known. Bins begin at multiples of `step`, so that they rest. */
function gridOf(parts, holds, start, step, count) {
  const sums = new Array(count).fill(0), spans = new Array(count).fill(0);
  for (const [from, to, value] of parts) {
    if (value === null || to < start * step || from > (start + count) * step) continue;
    const last = Math.min(Math.floor(to / step) - start, count - 1);
    for (let bin = Math.max(Math.floor(from / step) - start, 0); bin <= last; bin += 1) {
      const span = Math.min(to, (start + bin + 1) * step) - Math.max(from, (start + bin) * step);
      sums[bin] = holds ? Math.max(sums[bin], value) : sums[bin] + value * span;
      spans[bin] += span;
    }
  }
  return sums.map((sum, bin) => (spans[bin] > 0 ? (holds ? sum : sum / spans[bin]) : NaN));
}

function steps(grid, start, step, x, height) {
  let path = "", open = false;
  const n = (value) => Math.round(value * 10) / 10;
  grid.forEach((value, bin) => {
    const known = !Number.isNaN(value);
    if (known) path += `${open ? "V" : `M${n(x((start + bin) * step))} `}${n(height(value))}H${n(x((start + bin + 1) * step))}`;
    open = known;
  });
  return path;
}
