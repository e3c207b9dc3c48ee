import { escapeText } from "./draw.mjs";
import { clockText, duration, sparkline } from "./geometry.mjs";

// The parts of the panel around the timeline, as HTML text: header, gutter of workers, table of connectors, details.

/** What the buttons do. */
export const TIPS = {
  kill: "End the worker immediately: it does not leave the group and commits nothing. Its work moves after the rebalance delay.",
  "stop-worker": "Stop the worker gracefully: it commits, leaves the group, and its work moves.",
  "pause-worker": "Freeze the worker, its connections included. After a resume it is a zombie if its work has moved.",
  stall: "Stop the worker's heartbeats while its tasks continue: the zombie of KIP-618.",
  partition: "Cut the worker's connections to Kafka until you heal them.",
  "resume-worker": "End the pause or the stall.",
  heal: "Restore the worker's connections to Kafka.",
  add_worker: "Start one more worker; the group rebalances.",
  restart: "Restart the connector and its tasks.",
  "restart-failed": "Restart only what has failed.",
  pause: "Keep the tasks assigned, but idle.",
  resume: "Run the tasks again.",
  stop: "End the tasks; offsets can then be altered.",
  delete: "Delete the connector; its topics and offsets stay. Asks for confirmation.",
  details: "Tasks, configuration and traces.",
  "restart-task": "Restart this task.",
};

const SIGNS = { RUNNING: "●", PAUSED: "‖", FAILED: "✕", STOPPED: "■", RESTARTING: "↻", UNASSIGNED: "○", LOST: "◌" };

/** Verbs that make sense for a worker as it stands: what ends its faults first. */
export function workerVerbs({ gone, state, frozen, cut }) {
  if (gone || state === "stopping") return [];
  const ends = [...(frozen ? ["resume"] : []), ...(cut ? ["heal"] : [])];
  return ends.length ? [...ends, "kill"] : ["kill", "stop", "pause", "stall", "partition"];
}

export function headText(facts) {
  return Object.entries(facts).map(([name, value]) =>
    `<span class="cxp-fact"><span class="dim">${escapeText(name)}</span> ${escapeText(value || "–")}</span>`).join("");
}

export function gutterText(rows, top, past, tracks = [], dense = false) {
  return `<div class="cxp-now dim" style="height:${top}px">${past ? "workers as they are now" : ""}</div>` + rows.map((row) => {
    const name = escapeText(row.worker);
    const buttons = workerVerbs(row).map((verb) =>
      `<button type="button" data-verb="${verb}" data-worker="${name}" aria-label="${verb} ${name}" title="${TIPS[`${verb}-worker`] ?? TIPS[verb]}">${verb}</button>`);
    const state = escapeText(row.words + (row.leader ? ", leader" : ""));
    const work = row.gone ? [] : [workText(row)];
    if (row.pulse?.late) work.unshift(`<span class="bad">${row.pulse.text}</span>`);
    else if (row.pulse) work.push(row.pulse.text);
    const fold = dense ? `<button type="button" class="cxp-fold" data-expand="${name}" aria-expanded="${!row.folded}" aria-label="bars of ${name} with names" title="Bars of this worker with names, or small.">${row.folded ? "▸" : "▾"}</button>` : "";
    const start = `<div class="cxp-worker${row.folded ? " cxp-folded" : ""}" tabindex="-1" style="height:${row.height}px" data-worker="${name}" data-state="${escapeText(row.state)}">`
      + `<div>${fold}<span class="cxp-sign" aria-hidden="true">${row.sign}</span><b title="${name}">${name}</b>`;
    if (row.folded) return `${start} <span class="dim" title="${state}">${state}, ${work.join(", ")}</span></div><div class="cxp-verbs">${buttons.join("")}</div></div>`;
    return `${start}</div><div class="dim cxp-state" title="${state}">${state}</div>`
      + `<div class="dim cxp-state">${work.join(", ")}</div><div class="cxp-verbs">${buttons.join("")}</div></div>`;
  }).join("") + tracks.map(({ name, height, peak }) =>
    `<div class="cxp-track" style="height:${height}px"><b>${name}</b><div class="dim">peak ${countText(Math.round(peak))}</div></div>`).join("");
}

function workText({ generation, tasks, zombies }) {
  const parts = [generation == null ? "" : `gen ${generation}`, `${tasks} task${tasks === 1 ? "" : "s"}`];
  if (zombies) parts.push(`${zombies} zombie${zombies === 1 ? "" : "s"}`);
  return parts.filter(Boolean).join(", ");
}

export function connectorsText(connectors, rates, now, open, sure, { before = 0, after = 0, first = 0, none = "no connectors yet" } = {}) {
  if (!connectors.length) return `<tr><td colspan="9" class="dim">${none}</td></tr>`;
  const space = (height) => (height ? `<tr class="cxp-space" aria-hidden="true" style="height:${height}px"><td colspan="9"></td></tr>` : "");
  return space(before) + connectors.map((connector, number) => {
    const name = escapeText(connector.name);
    const tasks = Object.entries(connector.tasks).map(([state, count]) => `${count} ${shown(state)}`).join(", ") || "none";
    const did = actionText(connector.action);
    return `<tr tabindex="-1" aria-rowindex="${first + number + 2}" data-connector="${name}" data-state="${connector.state}"><th scope="row" title="${name}">${swatch(connector)}${name}</th><td>${shown(connector.state)}${bulkMark(connector)}</td>`
      + `<td class="dim">${escapeText(connector.worker ?? "")}</td><td title="${tasks.replace(/<[^>]*>/g, "")}">${tasks}</td><td class="cxp-data">${dataText(connector, rates.get(connector.name) ?? [], now)}</td>`
      + `<td class="cxp-where" title="${whereText(connector, now)}">${whereText(connector, now)}</td><td class="cxp-trouble" title="${troubleText(connector)}">${troubleText(connector)}</td><td class="cxp-did" title="${did.replace(/<[^>]*>/g, "")}">${did}</td><td class="cxp-actions">${buttons(connector, name, open === connector.name, sure === connector.name)}</td></tr>`;
  }).join("") + space(after);
}

/** A mark on a connector of which tasks are in the bulk lane. */
function bulkMark({ bulk: count }) {
  const said = `${count} task${count === 1 ? "" : "s"} in bulk: Spark's executors convert and write`;
  return count ? ` <span class="cxp-bulk dim" role="img" aria-label="${said}" title="${said}">⇉</span>` : "";
}

/** The lane of a task, the parts of its job that are done, and why it is in this lane. */
function laneText({ lane, lane_reason: why = "", parts, parts_done: done = 0 }) {
  if (!lane) return "";
  const job = parts ? ` <progress max="${parts}" value="${done}" aria-label="parts of the job done"></progress> ${done}/${parts} parts` : "";
  return `<div>${lane === "bulk" ? "⇉ " : ""}${lane}${job}</div><div class="dim">${escapeText(why)}</div>`;
}

export function swatch({ colour }) {
  return colour ? `<span class="cxp-swatch" style="background:${colour}"></span>` : "";
}

export function countText(count) {
  if (count == null) return "";
  return count < 1e7 ? count.toLocaleString("en") : `${(count / 1e6).toLocaleString("en", { maximumFractionDigits: 1 })} M`;
}

export function rateText({ rate }) {
  return rate == null ? "" : `${countText(rate)}/s`;
}

/** Records committed in all, the rates of the last minute as a line, the rate now. */
function dataText(connector, rates, now) {
  const path = sparkline(rates, now, 48, 14);
  const line = path ? `<path d="${path}" fill="none" stroke="currentColor"/>` : "";
  const said = [connector.committed === undefined ? "" : `${connector.committed.toLocaleString("en")} records committed`, connector.rate == null ? "" : `${rateText(connector)} over the last 8 s`];
  return `<div title="${said.filter(Boolean).join(", ")}"><span class="cxp-total">${countText(connector.committed)}</span>`
    + `<svg class="cxp-spark" width="48" height="14" aria-hidden="true">${line}</svg><span class="cxp-rate">${rateText(connector)}</span></div>`;
}

/** What is wrong with connectors, a line each, with the buttons that help. */
export function noticesText(connectors) {
  const lines = connectors.flatMap((connector) => noticesOf(connector).map(([sign, text, buttons]) =>
    `<div class="cxp-notice" data-notice="${escapeText(connector.name)}"><span aria-hidden="true">${sign}</span><span class="cxp-what" title="${escapeText(text)}">${escapeText(text)}</span>${buttons}</div>`));
  return lines.join("");
}

function noticesOf(connector) {
  const name = escapeText(connector.name), found = [];
  const fix = `<button type="button" data-edit="${name}" aria-label="fix the configuration of ${name}">fix</button>`;
  const again = `<button type="button" data-verb="restart-failed" data-connector="${name}" aria-label="restart failed ${name}" title="${TIPS["restart-failed"]}">restart failed</button>`;
  if (connector.failed.length || connector.state === "FAILED") found.push(["✕", connector.why || `${connector.name} has failed`, fix + again]);
  if (connector.waits) found.push(["!", `${connector.name} waits: ${connector.waits}`, ""]);
  if (connector.zombie) found.push(["!", `${connector.name}: zombies write ${countText(connector.zombie)} records/s of the ${rateText(connector)}`, ""]);
  const letters = `<button type="button" data-letters="${name}" aria-label="dead letters of ${name}" title="Browse, correct and send again.">dead letters</button>`;
  if (connector.skipped) found.push(["!", skippedText(connector), connector.dead_letters ? letters : ""]);
  return found;
}

/** How many records were left out because of errors, and where they are. */
export function skippedText({ name, skipped, dead_letters: letters }) {
  const records = (count) => `${countText(count)} record${count === 1 ? "" : "s"}`;
  const where = letters ? `; ${letters === skipped ? (letters === 1 ? "it is" : "they are") : `${countText(letters)} of them are`} in the dead letter queue` : "";
  return `${name}: ${records(skipped)} skipped because of errors${where}`;
}

/** What has gone wrong with records so far, in a few words: errors, skipped, dead letters, retries, zombies' records. */
export function troubleText({ errors, skipped, dead_letters: letters, retries, by_zombies: zombies }) {
  const counts = [[skipped, "skipped"], [letters, "dead letters"], [errors, "errors"], [retries, "retries"], [zombies, "by zombies"]];
  return counts.filter(([count]) => count).map(([count, what]) => `${countText(count)} ${count === 1 ? ONE[what] ?? what : what}`).join(", ");
}

const ONE = { "dead letters": "dead letter", errors: "error", retries: "retry", "by zombies": "by a zombie" };

/** A sink's lag in records, and in time where that is known. */
export function lagText({ lag, lagging_since: since }, now) {
  const lateness = Math.max(now - since, 0), step = lateness < 10_000 ? 100 : 1000;
  return lag == null ? "" : `lag ${countText(lag)}${since ? `, ${duration(Math.floor(lateness / step) * step)}` : ""}`;
}

/** How far a connector or a task has come: the lag of a sink, the source offset of a source. */
function whereText(work, now) {
  return lagText(work, now) || (work.offset ? `offset ${escapeText(work.offset)}` : "");
}

/** What was last done, when, and how long the panel's call took. */
export function actionText(action) {
  if (!action) return "";
  const took = action.took_ms === null ? "" : `, ${action.error ? "failed after" : "took"} ${duration(action.took_ms)}`;
  return `<span class="${action.error ? "bad" : ""}">${escapeText(action.what)} ${clockText(action.at)}${took}</span>`;
}

function shown(state) {
  return `<span class="${state === "FAILED" ? "bad" : ""}">${SIGNS[state] ?? ""} ${state}</span>`;
}

function buttons(connector, name, isOpen, isSure) {
  const idle = connector.state === "PAUSED" || connector.state === "STOPPED";
  const made = [["restart", "restart"], idle ? ["resume", "resume"] : ["pause", "pause"], ["stop", "stop"]].map(([verb, text]) =>
    `<button type="button" class="cxp-${verb === "resume" ? "pause" : verb}" data-verb="${verb}" data-connector="${name}" aria-label="${text} ${name}" title="${TIPS[verb]}"`
    + `${verb === "stop" && connector.state === "STOPPED" ? " disabled" : ""}>${text}</button>`);
  made.push(`<button type="button" class="cxp-open" data-open="${name}" aria-expanded="${isOpen}" aria-label="details of ${name}" title="${TIPS.details}">${isOpen ? "close" : "details"}</button>`);
  const text = isSure ? "really delete?" : "delete";
  made.push(`<button type="button" data-verb="delete" data-connector="${name}" aria-label="${text} ${name}" title="${TIPS.delete}"${isSure ? ' class="sure"' : ""}>${text}</button>`);
  return made.join("");
}

/** The tasks of one connector, each with its numbers and its own restart; `known`: its configuration is, so that it can be edited. */
export function tasksText(name, tasks, known, now) {
  const edit = `<b>${escapeText(name)}</b> <button type="button" data-edit="${escapeText(name)}" aria-label="edit ${escapeText(name)}"${known ? "" : " disabled"}>edit</button>`
    + ` <button type="button" data-peek="${escapeText(name)}" aria-label="peek at the data of ${escapeText(name)}" title="Newest records of its topic, or last rows of its target.">peek</button>`
    + ' <span class="dim cxp-fault">over time: <code>cluster.throughput()</code>, <code>cluster.lag()</code>, <code>cluster.latency()</code></span>';
  const rows = [...tasks].sort((a, b) => a.task - b.task).map((task) => {
    const label = `restart task ${task.task} of ${escapeText(name)}`;
    return `<tr data-task-row="${task.task}" data-state="${task.state}"><th scope="row">${task.task}</th><td>${shown(task.state)}</td>`
      + `<td class="dim">${escapeText(task.worker ?? "")}</td><td class="dim">${clockText(task.since)}</td><td>${task.epoch ?? ""}</td>`
      + `<td class="num">${countText(task.committed)}</td><td class="num">${rateText(task)}</td><td>${troubleText(task)}</td><td class="cxp-where" title="${whereText(task, now)}">${whereText(task, now)}</td>`
      + `<td class="cxp-lane" title="${escapeText(task.lane_reason ?? "")}">${laneText(task)}</td>`
      + `<td><button type="button" data-verb="restart-task" data-connector="${escapeText(name)}" data-task="${task.task}" aria-label="${label}" title="${TIPS["restart-task"]}">restart</button></td></tr>`;
  });
  const head = ["task", "state", "worker", "since", "epoch", "committed", "rate", "errors", "lag or offset", "lane", "action"].map((text) => `<th>${text}</th>`).join("");
  return edit + (rows.length ? `<table aria-label="tasks of ${escapeText(name)}"><thead><tr>${head}</tr></thead><tbody>${rows.join("")}</tbody></table>`
    : '<div class="dim">no tasks</div>');
}

/** Configuration and traces of one connector. */
export function detailsText(name, details) {
  if (!details) return `<div class="dim">asking for ${escapeText(name)} …</div>`;
  const config = Object.entries(details.config).map(([key, value]) =>
    `<tr><th scope="row">${escapeText(key)}</th><td>${escapeText(value ?? "")}</td></tr>`).join("");
  const traces = details.traces.map((trace) =>
    `<details open><summary>trace of ${escapeText(trace.who)}</summary><pre>${escapeText(trace.trace)}</pre></details>`).join("");
  const lost = details.lost.map((text) => `<div class="bad">${escapeText(text)}</div>`).join("");
  return `${lost}${traces}<table class="cxp-config" aria-label="configuration of ${escapeText(name)}"><tbody>${config}</tbody></table>`;
}
