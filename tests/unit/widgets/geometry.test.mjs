import assert from "node:assert/strict";
import { test } from "node:test";

import { clock, duration, emptyStore, heartbeat, layout, sentence, shorten, sparkline, take, takeSnapshot, windowOf } from "../../../widgets/connectx_widgets/static/geometry.mjs";
import { configOf, errorsOf, fieldsOf, formText } from "../../../widgets/connectx_widgets/static/form.mjs";
import { legendText, svgText } from "../../../widgets/connectx_widgets/static/draw.mjs";
import { actionText, connectorsText, gutterText, noticesText, tasksText, workerVerbs } from "../../../widgets/connectx_widgets/static/parts.mjs";
import { countdownText, storyText } from "../../../widgets/connectx_widgets/static/story.mjs";
import { inSight, selected } from "../../../widgets/connectx_widgets/static/table.mjs";

const look = JSON.parse(process.env.CONNECTX_LOOK); // the kernel's, which every page gets

const part = (state, from, to, seq = from) => ({ state, from, to, seq, what: `t on w: ${state}`, why: "" });
const bar = (label, parts, lane = 0) => ({ kind: "bar", worker: "w", label, lane, thin: false, colour: "#e69f00", text: "#000", parts });
const row = (worker = "w") => ({ kind: "row", order: 0, worker, state: "up", sign: "●", leader: false, words: "up", gone: false, frozen: null, cut: null, generation: 1 });

function store(elements) {
  const made = emptyStore();
  take(made, { kind: "all", seq: 1, first: true, last: true, set: elements, now: 10_000 }, 10_000);
  return made;
}

test("a change that follows is taken, one that skips asks for everything, one that comes twice changes nothing", () => {
  const known = store({ a: row() });
  assert.equal(take(known, { kind: "change", base: 1, seq: 2, set: { b: bar("t", [part("running", 0, null)]) }, drop: ["a"] }, 0), "taken");
  assert.deepEqual([...known.elements.keys()], ["b"]);
  assert.equal(take(known, { kind: "change", base: 1, seq: 2, set: { c: row() }, drop: [] }, 0), "taken");
  assert.deepEqual([...known.elements.keys()], ["b"]);
  assert.equal(take(known, { kind: "change", base: 5, seq: 6, set: {}, drop: [] }, 0), "resync");
});

test("a snapshot that holds only the newest asks for the rest", () => {
  assert.equal(takeSnapshot(emptyStore(), { seq: 3, now: 5, whole: false, elements: {} }, 0), "resync");
  assert.equal(takeSnapshot(emptyStore(), { seq: 3, now: 5, whole: true, elements: {} }, 0), "taken");
});

test("a page that did not hear of the end finds it in the snapshot, also in one that it has already", () => {
  const known = store({ r: row() });
  takeSnapshot(known, { seq: known.seq, now: 5, whole: true, ended: true, elements: {} }, 0);
  assert.equal(known.ended, true);
  assert.equal(known.elements.size, 1);
});

test("the clock runs while something goes on and the kernel is heard, and stands still when it is silent", () => {
  const known = store({ r: row(), b: bar("t", [part("running", 0, null)]) });
  assert.deepEqual(clock(known, 11_000), { now: 11_000, still: false, silent: 0 });
  assert.deepEqual(clock(known, 30_000), { now: 10_000, still: true, silent: 20_000 });
  const over = store({ r: { ...row(), gone: true }, b: bar("t", [part("running", 0, 5)]) });
  assert.equal(clock(over, 11_000).still, true);
});

test("an old picture does not run before the kernel was heard", () => {
  const known = emptyStore();
  takeSnapshot(known, { seq: 1, now: 500, whole: true, elements: { b: bar("t", [part("running", 0, null)]) } }, 99_000);
  assert.deepEqual(clock(known, 100_000), { now: 500, still: true, silent: 0 });
});

test("an open bar reaches to now and says how long it lasts", () => {
  const open = part("running", 4_000, null);
  const drawn = layout(store({ r: row(), b: bar("t", [open]) }), { from: 0, to: 10_000 }, 1000, 10_000, look);
  assert.deepEqual([drawn.bars[0].x, drawn.bars[0].width], [400, 600]);
  assert.equal(sentence(open, 10_000), "t on w: running, for 6.0 s");
  assert.equal(sentence(part("running", 0, 70_000), 0), "t on w: running, lasted 1 min 10 s");
});

test("bars lie in the lanes that the kernel gave them, without those that the window does not use", () => {
  const elements = { r: row(), old: bar("old", [part("running", 0, 5)], 1), a: bar("a", [part("running", 0, null)], 0), c: bar("c", [part("running", 8, null)], 2) };
  const tops = (from) => layout(store(elements), { from, to: 10 }, 100, 10, look).bars.map((shown) => [shown.task, (shown.y - look.top - look.rowPad - 2) / look.lane]);
  assert.deepEqual(tops(0), [["old", 1], ["a", 0], ["c", 2]]);
  assert.deepEqual(tops(7), [["a", 0], ["c", 1]]);
});

test("a heartbeat is as old as the kernel said last, and grows only when it is overdue", () => {
  const known = store({ r: row() });
  take(known, { kind: "beat", now: 20_000, heartbeats: { w: 19_600 } }, 20_000);
  assert.deepEqual(heartbeat(row(), known.heartbeats, 24_000), { late: false, text: "heartbeat 0.4 s ago" });
  assert.deepEqual(heartbeat({ ...row(), late: 19_600 }, known.heartbeats, 24_000), { late: true, text: "no heartbeat for 4.0 s" });
  assert.equal(heartbeat({ ...row(), gone: true, late: 1 }, known.heartbeats, 24_000), null);
  assert.equal(heartbeat(row("x"), known.heartbeats, 24_000), null);
});

test("a worker's line tells generation, tasks and zombies that are there now, whatever the window shows", () => {
  const elements = { r: row(), a: bar("a", [part("running", 0, null)]), z: bar("z", [part("running", 0, 5), part("zombie", 5, null)]), e: bar("e", [part("running", 0, 9)]) };
  const [shown] = layout(store(elements), { from: 0, to: 2 }, 100, 10_000, look).rows;
  assert.deepEqual([shown.tasks, shown.zombies], [1, 1]);
  assert.ok(gutterText([shown], 18).includes("gen 1, 1 task, 1 zombie"));
});

test("a window in the past cuts what is outside of it", () => {
  const elements = { r: row(), a: bar("a", [part("running", 0, 5_000)]), b: bar("b", [part("running", 50_000, null)]) };
  const known = store(elements);
  const shown = windowOf(known, { span: 20_000, end: 20_000 }, 60_000);
  assert.deepEqual([shown.from, shown.to, shown.first], [0, 20_000, 0]);
  assert.deepEqual(layout(known, shown, 100, 60_000, look).bars.map((one) => one.task), ["a"]);
});

test("a mark lies in its lane, one of the worker in the middle of its row, and a fence over a fault", () => {
  const mark = (kind, lane, seq) => ({ kind: "mark", worker: "w", mark: kind, at: 100, lane, seq, title: kind });
  const elements = { r: row(), b: bar("t", [part("running", 0, null)], 4), f: mark("fenced", 4, 2), x: mark("fault", null, 3) };
  const drawn = layout(store(elements), { from: 0, to: 1000 }, 1000, 1000, look);
  const { y, height } = drawn.rows[0], lane = y + look.rowPad + look.lane / 2;
  assert.deepEqual(drawn.marks.map((shown) => [shown.mark, shown.x, shown.y]), [["fault", 100, y + height / 2], ["fenced", 100, lane]]);
});

test("marks that lie under others of their kind are left out, and faults never are", () => {
  const mark = (kind, at, seq) => ({ kind: "mark", worker: "w", mark: kind, at, lane: null, seq, title: kind });
  const elements = { r: row(), d: mark("aborted", 104, 4), a: mark("aborted", 100, 1), b: mark("aborted", 103, 2), f: mark("fenced", 103, 3), x: mark("fault", 101, 5), y: mark("fault", 102, 6) };
  const drawn = layout(store(elements), { from: 0, to: 1000 }, 1000, 1000, look);
  assert.deepEqual(drawn.marks.map((shown) => [shown.mark, shown.x]), [["aborted", 100], ["fault", 101], ["fault", 102], ["aborted", 104], ["fenced", 103]]);
});

test("a shape of the kernel is drawn in its place, with the page's own patterns", () => {
  const drawn = layout(store({ r: row(), b: bar("t", [part("zombie", 2_000, 4_000)]) }), { from: 0, to: 10_000 }, 1000, 10_000, look);
  const text = svgText(drawn, "k", look);
  assert.ok(text.includes('<rect x="200" y="26" width="200" height="14" rx="2" fill="url(#kz)"') && text.includes('<pattern id="kz"'));
  for (const made of [text, legendText("k", look)]) assert.ok(!/undefined|NaN|\{/.test(made), made);
});

test("what happens to the broker is drawn across all workers", () => {
  const elements = { r: row(), b: { kind: "mark", worker: null, mark: "fault", at: 100, lane: null, seq: 7, title: "fault: the broker was killed" } };
  const drawn = layout(store(elements), { from: 0, to: 1000 }, 1000, 1000, look);
  assert.deepEqual(drawn.marks.map((shown) => [shown.x, shown.title]), [[100, "fault: the broker was killed"]]);
  assert.ok(svgText(drawn, "k", look).includes(`M100 18V${drawn.bottom}`));
});

test("generations that lie close together have numbers for names, and none when there is no room for these", () => {
  const band = (generation, from) => ({ kind: "band", generation, from, to: from + 1, title: "t" });
  const elements = { r: row(), a: band(1, 0), b: band(2, 30), c: band(3, 31), d: band(4, 990), e: band(5, 995) };
  const { bands } = layout(store(elements), { from: 0, to: 1000 }, 1000, 1000, look);
  assert.deepEqual(bands.map((shown) => shown.label), ["gen 1", "2", "3", "gen 4", ""]);
  for (const shown of bands) assert.ok(shown.labelX + shown.label.length * look.char <= 1000);
});

test("text of others is never markup", () => {
  const drawn = layout(store({ r: row(), b: bar("<b>", [part("running", 0, null)]) }), { from: 0, to: 10 }, 1000, 10, look);
  assert.ok(!svgText(drawn, "k", look).includes("<b>"));
});

test("words are those of the history", () => {
  assert.deepEqual([40, 3_000, 59_960, 125_000].map(duration), ["40 ms", "3.0 s", "1 min", "2 min 5 s"]);
  assert.equal(shorten("a-long-connector-12", 10), "a-long…-12");
});

test("a worker offers what makes sense in its state", () => {
  const worker = (state, more = {}) => ({ state, gone: false, frozen: null, cut: null, ...more });
  assert.ok(workerVerbs(worker("up")).includes("kill"));
  assert.deepEqual(workerVerbs(worker("paused", { frozen: "paused" })), ["resume", "kill"]);
  assert.deepEqual(workerVerbs(worker("paused", { frozen: "paused", cut: "in" })), ["resume", "heal", "kill"]);
  assert.deepEqual(workerVerbs(worker("cut off", { cut: "both" })), ["heal", "kill"]);
  assert.deepEqual(workerVerbs(worker("killed", { gone: true, cut: "both" })), []);
});

test("a form gives what was set and leaves defaults out", () => {
  const definition = (name, value) => ({ name, type: "STRING", required: false, importance: "HIGH", group: null, documentation: "", display_name: name, default_value: value });
  const validation = { configs: ["topic", "rate"].map((name) => ({ definition: definition(name, "1"), value: { recommended_values: [], errors: [] } })) };
  const fields = fieldsOf(validation, {});
  assert.deepEqual(configOf(fields, { topic: "t", rate: "1", extra: "x", empty: "" }), { topic: "t", extra: "x" });
});

const connector = (more) => ({ kind: "connector", name: "lines", state: "RUNNING", worker: "w", tasks: { RUNNING: 1 }, failed: [], action: null, ...more });

test("a connector's line has its lag or source offset, its rate and what was last done to it", () => {
  const action = { what: "restart failed", at: Date.parse("2026-11-21T12:03:04"), took_ms: 400, error: false };
  const text = connectorsText([connector({ lag: 1234, rate: 5000, action }), connector({ name: "in", offset: '{"position": 7}', committed: 27004 })], new Map(), 0, null, null);
  for (const part of ["lag 1,234", "5,000/s", "27,004 records committed", "restart failed 12:03:04, took 0.4 s", "offset {&quot;position&quot;: 7}"]) assert.ok(text.includes(part), part);
  assert.equal(actionText({ ...action, took_ms: null }), '<span class="">restart failed 12:03:04</span>');
  assert.ok(actionText({ ...action, error: true }).includes('class="bad">restart failed 12:03:04, failed after 0.4 s'));
});

test("a stopped connector can be resumed and one that has failed restarted where it failed", () => {
  assert.ok(connectorsText([connector({ state: "STOPPED" })], new Map(), 0, null, null).includes('data-verb="resume"'));
  assert.ok(noticesText([connector({ failed: ["lines-0"] })]).includes('data-verb="restart-failed"'));
});

test("what is wrong with connectors is said in a line each, and nothing where nothing is", () => {
  assert.equal(noticesText([connector({ skipped: 0, zombie: 0, waits: null })]), "");
  const text = noticesText([connector({ why: "lines-0: <b>OSError</b>", failed: ["lines-0"], waits: "in.txt does not exist", rate: 300, zombie: 200, skipped: 5, dead_letters: 4 })]);
  for (const part of ["lines-0: &lt;b&gt;OSError", 'data-edit="lines"', "lines waits: in.txt does not exist", "zombies write 200 records/s of the 300/s",
    "lines: 5 records skipped because of errors; 4 of them are in the dead letter queue"]) assert.ok(text.includes(part), part);
});

test("rates become a line that moves once a second, and no line while nothing has moved", () => {
  const rates = [{ at: 40_000, rate: 0 }, { at: 70_000, rate: 100 }, { at: 99_000, rate: 50 }];
  assert.equal(sparkline(rates, 99_200, 60, 12), "M0 11H30V1H59V6H60");
  assert.equal(sparkline(rates, 99_900, 60, 12), sparkline(rates, 99_200, 60, 12));
  assert.equal(sparkline([{ at: 40_000, rate: 0 }], 99_200, 60, 12), "");
});

test("rates are kept for as long as they are drawn", () => {
  const made = emptyStore();
  [0, 50, 100, 300].forEach((second, seq) => take(made, { kind: "change", base: seq - 1, seq, drop: [], now: 1000 * second, set: { "connector:in": connector({ name: "in", rate: second }) } }, 0));
  assert.deepEqual(made.rates.get("in").map(({ rate }) => rate), [300]);
});

test("each task has a restart of its own", () => {
  const task = (number, more) => ({ kind: "task", connector: "lines", task: number, state: "RUNNING", worker: "w", epoch: null, since: 0, ...more });
  const text = tasksText("lines", [task(10), task(2, { state: "FAILED", rate: 3, lag: 9 })]);
  assert.ok(text.indexOf('data-task="2"') < text.indexOf('data-task="10"'));
  for (const part of ["FAILED", "3/s", "lag 9", 'aria-label="restart task 10 of lines"']) assert.ok(text.includes(part), part);
  assert.ok(tasksText("lines", []).includes("no tasks"));
});

const form = (more) => ({ name: "lines", class: "C", classes: [], values: {}, fields: [], errors: [], diff: [], exists: false, editing: false, busy: false, sent: null,
  more: new Set(), other: { key: "", value: "" }, ...more });
const canSend = (made) => !/data-form="send" disabled/.test(formText(made));

test("a form sends nothing that would be refused or change nothing", () => {
  assert.ok(canSend(form()));
  assert.ok(!canSend(form({ name: "" })) && !canSend(form({ busy: true })) && !canSend(form({ exists: true })));
  assert.ok(!canSend(form({ errors: [{ name: "topic", error: "Missing", shown: true }] })));
  assert.ok(!canSend(form({ editing: true })));
  const diff = [{ key: "topic", before: "a", after: "b" }];
  assert.ok(canSend(form({ editing: true, exists: true, diff })));
});

test("a dry run shows the difference to what runs, also for a name that is taken", () => {
  const text = formText(form({ exists: true, diff: [{ key: "topic", before: "a", after: null }] }));
  assert.ok(text.includes("There is a connector lines already"));
  assert.ok(text.includes("<td>topic</td><td>a</td><td>–</td>"));
});

test("the configuration that a form shows has no password, and the one that it sends has it", () => {
  const field = { name: "connection.password", type: "PASSWORD", required: false, importance: "HIGH", group: "Target", doc: "", default: null, choices: [], errors: [], given: true };
  const made = form({ fields: [field], values: { "connection.password": "s3cret" } });
  assert.deepEqual(configOf(made.fields, made.values), { "connection.password": "s3cret" });
  const text = formText(made);
  assert.ok(text.includes('type="password" value="s3cret"'), "the browser hides what was typed");
  assert.ok(!text.replace('type="password" value="s3cret"', "").includes("s3cret"));
  assert.ok(text.includes("connection.password&quot;: &quot;[hidden]&quot;"));
});

test("errors of what has no field are shown, and keys that the class does not define can be given", () => {
  const definition = { name: "connector.class", type: "STRING" };
  const errors = errorsOf({ configs: [{ definition, value: { errors: ["no such class"] } }] }, []);
  assert.deepEqual(errors, [{ name: "connector.class", error: "no such class", shown: false }]);
  const text = formText(form({ errors, values: { "producer.override.linger.ms": "5", topic: "t" }, fields: [] }));
  assert.ok(text.includes("no such class") && text.includes('data-field="producer.override.linger.ms" value="5"'));
});

test("a patch replaces fields of an element and leaves the others", () => {
  const known = store({ "connector:a": { kind: "connector", name: "a", state: "RUNNING", rate: 1, moved: 5 } });
  take(known, { kind: "change", base: 1, seq: 2, set: {}, patch: { "connector:a": { rate: 2, offset: null } }, drop: [] }, 0);
  assert.deepEqual(known.elements.get("connector:a"), { kind: "connector", name: "a", state: "RUNNING", rate: 2, moved: 5, offset: null });
});

test("records that come after a silence were moved within one second, so that an outage is a dip", () => {
  const known = store({ "connector:a": { kind: "connector", name: "a", colour: "#e69f00", rate: 0, moved: 100, lag: 3 } });
  const second = (seq, now, moved) => take(known, { kind: "change", base: seq - 1, seq, set: {}, patch: { "connector:a": { moved } }, drop: [], now }, now);
  second(2, 11_000, 300);
  second(3, 17_000, 900);
  assert.deepEqual(known.tracks.get("a").rate, [{ at: 11_000, value: 200 }, { at: 16_000, value: 0 }, { at: 17_000, value: 600 }]);
  const [rates, lag] = layout(known, { from: 10_000, to: 20_000 }, 300, 20_000, look).tracks;
  assert.deepEqual([rates.name, rates.peak, rates.lines.length, lag.peak], ["records/s", 600, 1, 3]);
  assert.match(rates.lines[0].path, /^M0 /);
});

test("records that are counted every two seconds have a steady rate", () => {
  const known = store({ "connector:a": { kind: "connector", name: "a", colour: "#e69f00", rate: 0, moved: 0, every: 2_000 } });
  for (const [seq, moved] of [[2, 100], [3, 200]]) {
    const now = 9_000 + 2_000 * (seq - 1);
    take(known, { kind: "change", base: seq - 1, seq, set: {}, patch: { "connector:a": { moved } }, drop: [], now }, now);
  }
  assert.deepEqual(known.tracks.get("a").rate, [{ at: 11_000, value: 100 }, { at: 13_000, value: 50 }]);
});

test("what was sampled before the page was opened goes before what it has heard", () => {
  const known = store({ "connector:a": { kind: "connector", name: "a", rate: 0, moved: 100, lag: 3 } });
  take(known, { kind: "answer", id: "series", value: { a: { rate: [[1_000, 7]], lag: [[1_000, 9], [99_000, 1]] } } }, 0);
  assert.deepEqual(known.tracks.get("a").rate, [{ at: 1_000, value: 7 }]);
  assert.deepEqual(known.tracks.get("a").lag, [{ at: 1_000, value: 9 }, { at: 10_000, value: 3 }]);
});

test("a window of the past has clock times, and a live one does not", () => {
  const known = store({ r: row() }), at = new Date(2026, 0, 1, 8, 21, 0).getTime();
  const labels = (past) => layout(known, { from: at, to: at + 60_000, past }, 600, at + 60_000, look).axis.map(({ text }) => text);
  assert.deepEqual(labels(true).slice(0, 2), ["08:21:00", "08:21:10"]);
  assert.equal(labels(false)[0], "now");
});

test("many lanes are drawn small, but for workers that are unfolded, and a filter leaves the others out", () => {
  const bars = Object.fromEntries([...Array(60).keys()].map((n) => [`b${n}`, bar(`t${n}-0`, [part("running", 0, null)], n)]));
  const known = store({ r: row(), ...bars }), window = { from: 0, to: 10_000 };
  const folded = layout(known, window, 500, 10_000, look), unfolded = layout(known, window, 500, 10_000, look, { expanded: new Set(["w"]) });
  assert.ok(folded.dense && folded.rows[0].folded && folded.bottom < 460);
  assert.equal(folded.labels.length, 0);
  assert.equal(unfolded.rows[0].height, 60 * look.lane + 2 * look.rowPad);
  assert.deepEqual(layout(known, window, 500, 10_000, look, { only: new Set(["t7"]) }).bars.map(({ task }) => task), ["t7-0"]);
});

test("a dead worker is left out when nothing in the window is about it", () => {
  const known = store({ r: { ...row(), gone: true }, b: bar("t-0", [part("running", 0, 5_000)]) });
  assert.equal(layout(known, { from: 4_000, to: 9_000 }, 500, 9_000, look).rows.length, 1);
  const later = layout(known, { from: 6_000, to: 9_000 }, 500, 9_000, look);
  assert.deepEqual([later.rows.length, later.hidden], [0, 1]);
  assert.equal(layout(known, { from: 6_000, to: 9_000 }, 500, 9_000, look, { dead: true }).rows.length, 1);
});

const listed = (name, more = {}) => ({ name, state: "RUNNING", worker: "worker-1", failed: [], why: "", ...more });

test("all words of a filter must be there, and an order has the highest first", () => {
  const all = [listed("b", { rate: 5 }), listed("a"), listed("c", { failed: ["c-0"], why: "c-0: OSError" })];
  const names = (filter, order) => selected(all, filter, order).map(({ name }) => name);
  assert.deepEqual(names("", "name"), ["a", "b", "c"]);
  assert.deepEqual(names("", "rate"), ["b", "a", "c"]);
  assert.deepEqual(names("", "state"), ["c", "a", "b"]);
  assert.deepEqual(names("worker-1 oserror", "name"), ["c"]);
  assert.deepEqual(names("failed", "name"), ["c"]);
});

test("of many rows those in sight are drawn, with as much space around them as the others take", () => {
  assert.deepEqual(inSight(20, 25, { scrollTop: 0, clientHeight: 250 }), { from: 0, to: 20, before: 0, after: 0 });
  const { from, to, before, after } = inSight(100, 25, { scrollTop: 1_000, clientHeight: 250 });
  assert.ok(from <= 40 && to >= 50 && to - from < 30);
  assert.equal(before + (to - from) * 25 + after, 2_500);
});

test("lost work counts down, and is handed over when its time has come", () => {
  const known = store({ l: { kind: "lost", worker: "w-2", work: ["a-0", "b-0", "c-0", "d"], due: 12_345, waits: ["x.ms", "y.ms"] } });
  assert.match(countdownText(known, 10_000), /title="x.ms, then y.ms">a-0, b-0, c-0 and 1 more of w-2 move in <b>2.3 s<\/b> at the latest/);
  assert.match(countdownText(known, 13_000), /of w-2 are being handed over/);
});

test("the newest story is told, or the one that was chosen, with those around it", () => {
  const told = [1, 2, 3].map((seq) => ({ seq, at: seq, sentence: `story ${seq}` }));
  assert.match(storyText(told, null), /data-story="2".*data-jump="3"/);
  assert.match(storyText(told, 2), /data-story="1".*data-story="3".*data-jump="2"/);
  assert.match(storyText([], null), /Nothing has happened/);
});
