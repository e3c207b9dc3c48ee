import { escapeText } from "./draw.mjs";
import { duration } from "./geometry.mjs";

// The parts of the panel around the timeline, as HTML text: header, gutter of workers, table of connectors, details.

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

export function gutterText(rows, top) {
  return `<div style="height:${top}px"></div>` + rows.map((row) => {
    const name = escapeText(row.worker);
    const buttons = workerVerbs(row).map((verb) =>
      `<button type="button" data-verb="${verb}" data-worker="${name}" aria-label="${verb} ${name}">${verb}</button>`);
    const state = escapeText(row.words + (row.leader ? ", leader" : ""));
    const work = row.gone ? [] : [workText(row)];
    if (row.pulse?.late) work.unshift(`<span class="bad">${row.pulse.text}</span>`);
    else if (row.pulse) work.push(row.pulse.text);
    return `<div class="cxp-worker" tabindex="-1" style="height:${row.height}px" data-worker="${name}" data-state="${escapeText(row.state)}">`
      + `<div><span class="cxp-sign" aria-hidden="true">${row.sign}</span><b title="${name}">${name}</b></div>`
      + `<div class="dim cxp-state" title="${state}">${state}</div>`
      + `<div class="dim cxp-state">${work.join(", ")}</div><div class="cxp-verbs">${buttons.join("")}</div></div>`;
  }).join("");
}

function workText({ generation, tasks, zombies }) {
  const parts = [generation == null ? "" : `gen ${generation}`, `${tasks} task${tasks === 1 ? "" : "s"}`];
  if (zombies) parts.push(`${zombies} zombie${zombies === 1 ? "" : "s"}`);
  return parts.filter(Boolean).join(", ");
}

export function connectorsText(connectors, open, sure) {
  if (!connectors.length) return '<tr><td colspan="8" class="dim">no connectors yet</td></tr>';
  return connectors.map((connector) => {
    const name = escapeText(connector.name);
    const tasks = Object.entries(connector.tasks).map(([state, count]) => `${count} ${shown(state)}`).join(", ") || "none";
    return `<tr tabindex="-1" data-connector="${name}" data-state="${connector.state}"><th scope="row" title="${name}">${name}</th><td>${shown(connector.state)}</td>`
      + `<td class="dim">${escapeText(connector.worker ?? "")}</td><td>${tasks}</td><td class="num">${rateText(connector)}</td>`
      + `<td class="cxp-where" title="${whereText(connector)}">${whereText(connector)}</td><td class="cxp-did">${actionText(connector.action)}</td><td class="cxp-actions">${buttons(connector, name, open === connector.name, sure === connector.name)}</td></tr>`;
  }).join("");
}

function rateText({ rate }) {
  return rate === undefined ? "" : `${rate.toLocaleString("en")}/s`;
}

/** How far a connector or a task has come: records behind of a sink, the source offset of a source. */
function whereText({ lag, offset }) {
  return lag != null ? `lag ${lag.toLocaleString("en")}` : offset ? `offset ${escapeText(offset)}` : "";
}

/** What was last done, when, and how long the panel's call took. */
export function actionText(action) {
  if (!action) return "";
  const took = action.took_ms === null ? "" : `, ${action.error ? "failed after" : "took"} ${duration(action.took_ms)}`;
  return `<span class="${action.error ? "bad" : ""}">${escapeText(action.what)} ${timeText(action.at)}${took}</span>`;
}

function timeText(ms) {
  return new Date(ms).toLocaleTimeString("en-GB");
}

function shown(state) {
  return `<span class="${state === "FAILED" ? "bad" : ""}">${SIGNS[state] ?? ""} ${state}</span>`;
}

function buttons(connector, name, isOpen, isSure) {
  const failed = connector.failed.length || connector.state === "FAILED";
  const verbs = [["restart", "restart"]];
  if (failed) verbs.unshift(["restart-failed", "restart failed"]);
  verbs.push(connector.state === "PAUSED" || connector.state === "STOPPED" ? ["resume", "resume"] : ["pause", "pause"]);
  if (connector.state !== "STOPPED") verbs.push(["stop", "stop"]);
  verbs.push(["delete", isSure ? "really delete?" : "delete"]);
  const made = verbs.map(([verb, text]) =>
    `<button type="button" data-verb="${verb}" data-connector="${name}" aria-label="${text} ${name}"`
    + `${isSure && verb === "delete" ? ' class="sure"' : ""}>${text}</button>`);
  made.push(`<button type="button" data-open="${name}" aria-expanded="${isOpen}" aria-label="details of ${name}">${isOpen ? "close" : "details"}</button>`);
  return made.join("");
}

/** The tasks of one connector, each with its numbers and its own restart; `known`: its configuration is, so that it can be edited. */
export function tasksText(name, tasks, known) {
  const edit = `<b>${escapeText(name)}</b> <button type="button" data-edit="${escapeText(name)}" aria-label="edit ${escapeText(name)}"${known ? "" : " disabled"}>edit</button>`
    + ' <span class="dim cxp-fault">over time: <code>cluster.throughput()</code>, <code>cluster.lag()</code></span>';
  const rows = [...tasks].sort((a, b) => a.task - b.task).map((task) => {
    const label = `restart task ${task.task} of ${escapeText(name)}`;
    return `<tr data-task-row="${task.task}" data-state="${task.state}"><th scope="row">${task.task}</th><td>${shown(task.state)}</td>`
      + `<td class="dim">${escapeText(task.worker ?? "")}</td><td class="dim">${timeText(task.since)}</td><td>${task.epoch ?? ""}</td>`
      + `<td class="num">${rateText(task)}</td><td class="cxp-where" title="${whereText(task)}">${whereText(task)}</td>`
      + `<td><button type="button" data-verb="restart-task" data-connector="${escapeText(name)}" data-task="${task.task}" aria-label="${label}">restart</button></td></tr>`;
  });
  const head = ["task", "state", "worker", "since", "epoch", "records", "lag or offset", "action"].map((text) => `<th>${text}</th>`).join("");
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
