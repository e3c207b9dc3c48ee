// What is where on the timeline. Pure: elements, a window of time and a width in, numbers out. Times in milliseconds.

export const LANE = 18, BAR = 14, THIN_LANE = 7, THIN = 5, ROW_PAD = 6, ROW_LEAST = 58, TOP = 18, AXIS = 22;
const CHAR = 6.2;
const STEPS_S = [0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 86400];
const SILENT_MS = 12_000, LEAST_MS = 15_000;

// ------------------------------------------------------------------------------------------------- what is known

export function emptyStore() {
  return { elements: new Map(), seq: -1, skew: 0, heard: 0, live: false, ended: false, heartbeats: null };
}

/** Take a message of the kernel; "resync" when something in between was missed. Taking one twice changes nothing. */
export function take(store, message, pageNow) {
  if (typeof message.now === "number") {
    store.skew = message.now - pageNow;
    store.heard = pageNow;
    store.live = true;
  }
  if (message.kind === "ended") store.ended = true;
  if (message.kind === "beat" && message.heartbeats) store.heartbeats = { at: message.now, of: message.heartbeats };
  if (message.kind === "all") {
    if (message.first) store.elements = new Map();
    for (const [key, element] of Object.entries(message.set)) store.elements.set(key, element);
    if (message.last) store.seq = message.seq;
    return "taken";
  }
  if (message.kind !== "change" || message.seq <= store.seq) return "taken";
  if (message.base !== store.seq) return "resync";
  for (const key of message.drop) store.elements.delete(key);
  for (const [key, element] of Object.entries(message.set)) store.elements.set(key, element);
  store.seq = message.seq;
  return "taken";
}

/** Take the snapshot that a page finds when it opens; "resync" when it does not hold everything. */
export function takeSnapshot(store, snapshot, pageNow) {
  if (snapshot?.ended) store.ended = true;
  if (!snapshot || typeof snapshot.seq !== "number" || snapshot.seq <= store.seq) return "taken";
  store.elements = new Map(Object.entries(snapshot.elements));
  store.seq = snapshot.seq;
  if (!store.live) [store.heard, store.skew] = [pageNow, snapshot.now - pageNow];
  return snapshot.whole ? "taken" : "resync";
}

export function ofKind(store, kind) {
  return [...store.elements.values()].filter((element) => element.kind === kind);
}

/** The cluster's time on this page; it stands still when nothing goes on, or when the kernel is silent though it does. */
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

/** What is known of a worker's heartbeat: its age when the kernel last said it, or since when none was answered. */
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
  return { from: to - span, to, first: Number.isFinite(first) ? first : to - span };
}

// -------------------------------------------------------------------------------------------------------- words

export function duration(ms) {
  if (ms < 100) return `${Math.round(ms)} ms`;
  if (ms < 59_950) return `${(ms / 1000).toFixed(1)} s`;
  const seconds = Math.round(ms / 1000);
  return seconds % 60 ? `${Math.floor(seconds / 60)} min ${seconds % 60} s` : `${seconds / 60} min`;
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

/** Everything to draw between `window.from` and `window.to` on `width` pixels. */
export function layout(store, window, width, now) {
  const x = (ms) => ((ms - window.from) / Math.max(window.to - window.from, 1)) * width;
  const rows = ofKind(store, "row").sort((a, b) => a.order - b.order);
  const bars = ofKind(store, "bar").filter((bar) => meets(bar.parts[0].from, bar.parts.at(-1).to ?? now, window));
  const marks = ofKind(store, "mark").filter((mark) => mark.at >= window.from && mark.at <= window.to);
  const drawn = /** @type {any} */ ({ rows: [], bars: [], labels: [], marks: [], bands: [], axis: [], height: 0, width });
  let y = TOP;
  for (const row of rows) {
    const own = bars.filter((bar) => bar.worker === row.worker);
    const lanes = packed(own.filter((bar) => !bar.thin), now);
    const thin = packed(own.filter((bar) => bar.thin), now);
    const height = Math.max(lanes.count * LANE + thin.count * THIN_LANE + 2 * ROW_PAD, ROW_LEAST);
    drawn.rows.push({ ...row, y, height, ...held(store, row.worker), pulse: heartbeat(row, store.heartbeats, now) });
    for (const bar of own) {
      const lane = (bar.thin ? thin : lanes).of.get(bar);
      const top = bar.thin ? y + ROW_PAD + lanes.count * LANE + lane * THIN_LANE + 1 : y + ROW_PAD + lane * LANE + 2;
      const parts = placedParts(bar, top, x, window, now);
      drawn.bars.push(...parts);
      if (!bar.thin) drawn.labels.push(...labels(bar, parts, top));
    }
    for (const mark of marks.filter((mark) => mark.worker === row.worker)) {
      const about = own.find((bar) => !bar.thin && bar.label === mark.task && bar.parts[0].from <= mark.at
        && mark.at <= (bar.parts.at(-1).to ?? now));
      const middle = about ? y + ROW_PAD + lanes.of.get(about) * LANE + LANE / 2 : y + height / 2;
      drawn.marks.push({ ...mark, x: x(mark.at), y: middle });
    }
    y += height;
  }
  for (const mark of marks.filter((mark) => mark.worker === null)) drawn.marks.push({ ...mark, x: x(mark.at), y: TOP });
  drawn.bottom = y;
  drawn.height = y + AXIS;
  drawn.marks = merged(drawn.marks).sort((a, b) => Number(a.mark === "fenced") - Number(b.mark === "fenced"));
  drawn.bands = bands(store, window, x, width, now);
  drawn.axis = axis(window, x, width, now);
  return drawn;
}

function meets(from, to, window) {
  return from <= window.to && to >= window.from;
}

/** Lanes of what is in the window: its own again for a task when that is free, else the lowest free one. */
function packed(bars, now) {
  const free = [], home = new Map(), of = new Map();
  for (const bar of [...bars].sort((a, b) => a.parts[0].from - b.parts[0].from || (a.label < b.label ? -1 : 1))) {
    const from = bar.parts[0].from, to = bar.parts.at(-1).to ?? now;
    let lane = home.get(bar.label);
    if (lane === undefined || free[lane] > from) lane = free.findIndex((until) => until < from);
    if (lane < 0) lane = free.length;
    free[lane] = Math.max(to, from + 1);
    home.set(bar.label, lane);
    of.set(bar, lane);
  }
  return { of, count: free.length };
}

function placedParts(bar, top, x, window, now) {
  return bar.parts.filter((part) => meets(part.from, part.to ?? now, window)).map((part) => {
    const left = x(Math.max(part.from, window.from));
    const right = x(Math.min(part.to ?? now, window.to));
    return {
      key: `${bar.worker}:${part.seq}:${bar.label}`, worker: bar.worker, task: bar.label, seq: part.seq, state: part.state,
      colour: bar.colour, text: bar.text, x: left, y: top, width: Math.max(right - left, 1.5), height: bar.thin ? THIN : BAR,
      title: sentence(part, now), open: part.to === null,
    };
  });
}

/** The task's name in the first part with room for it, and in a zombie's. */
function labels(bar, parts, top) {
  const needed = bar.label.length * CHAR + 8;
  const roomy = parts.filter((part) => part.width >= needed);
  const widest = [...parts].sort((a, b) => b.width - a.width)[0];
  const chosen = roomy.length ? roomy.slice(0, 1) : widest && widest.width >= 5 * CHAR + 8 ? [widest] : [];
  chosen.push(...parts.filter((part) => !chosen.includes(part) && part.state === "zombie" && part.width >= 10 * CHAR));
  return chosen.map((part) => ({
    x: part.x + 4, y: top + BAR - 3.5, state: part.state, fill: part.state === "running" ? part.text : null,
    text: shorten(bar.label, Math.floor((part.width - 8) / CHAR)),
  }));
}

/** Marks in one place that would cover each other are one sign; faults never are. */
function merged(marks) {
  const shown = [];
  for (const mark of marks) {
    const near = shown.find((other) => other.mark !== "fault" && mark.mark !== "fault" && other.worker === mark.worker
      && other.y === mark.y && Math.abs(other.x - mark.x) < 6);
    if (!near) shown.push({ ...mark, titles: [mark.title] });
    else {
      near.titles.push(mark.title);
      if (mark.mark === "fenced") near.mark = "fenced";
    }
  }
  return shown.map((mark) => ({ ...mark, title: [...new Set(mark.titles)].join("; ") }));
}

function bands(store, window, x, full, now) {
  let labelEnd = 0;
  const shown = ofKind(store, "band").filter((band) => meets(band.from, band.to ?? now, window));
  return shown.sort((a, b) => a.from - b.from).map((band) => {
    const left = x(Math.max(band.from, window.from));
    const width = Math.max(x(Math.min(band.to ?? now, window.to)) - left, 2);
    let label = band.generation === null ? "gen ?" : `gen ${band.generation}`;
    const labelX = Math.min(left, full - label.length * CHAR);
    if (labelX < labelEnd) label = "";
    else labelEnd = labelX + label.length * CHAR + 5;
    return { ...band, x: left, width, label, labelX };
  });
}

function axis(window, x, width, now) {
  const span = Math.max(window.to - window.from, 1) / 1000;
  const step = STEPS_S.find((step) => span / step <= Math.max(width / 90, 2)) ?? STEPS_S[STEPS_S.length - 1];
  const ticks = [];
  for (let offset = Math.max(0, Math.ceil((now - window.to) / 1000 / step) * step); now - offset * 1000 >= window.from; offset += step) {
    const back = Math.round(offset * 10) / 10;
    const text = back === 0 ? "now" : step >= 60 ? `−${back / 60} min` : `−${back} s`;
    ticks.push({ x: x(now - offset * 1000), text });
    if (ticks.length > 200) break;
  }
  return ticks;
}
