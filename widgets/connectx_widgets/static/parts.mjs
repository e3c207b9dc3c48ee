import { escapeText } from "./draw.mjs";

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
    return `<div class="cxp-worker" style="height:${row.height}px" data-worker="${name}" data-state="${escapeText(row.state)}">`
      + `<div><span class="cxp-sign" aria-hidden="true">${row.sign}</span><b title="${name}">${name}</b></div>`
      + `<div class="dim cxp-state">${state}</div><div class="cxp-verbs">${buttons.join("")}</div></div>`;
  }).join("");
}

export function connectorsText(connectors, open, sure) {
  if (!connectors.length) return '<tr><td colspan="7" class="dim">no connectors yet</td></tr>';
  return connectors.map((connector) => {
    const name = escapeText(connector.name);
    const tasks = Object.entries(connector.tasks).map(([state, count]) => `${count} ${shown(state)}`).join(", ") || "none";
    const where = connector.lag !== undefined && connector.lag !== null ? `lag ${connector.lag.toLocaleString("en")}`
      : connector.offset ? `offset ${escapeText(connector.offset)}` : "";
    const rate = connector.rate === undefined ? "" : `${connector.rate.toLocaleString("en")}/s`;
    return `<tr data-connector="${name}" data-state="${connector.state}"><th scope="row" title="${name}">${name}</th><td>${shown(connector.state)}</td>`
      + `<td class="dim">${escapeText(connector.worker ?? "")}</td><td>${tasks}</td><td class="num">${rate}</td>`
      + `<td class="cxp-where">${where}</td><td class="cxp-actions">${buttons(connector, name, open === connector.name, sure === connector.name)}</td></tr>`;
  }).join("");
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

/** Configuration and traces of one connector. */
export function detailsText(name, details) {
  if (!details) return `<div class="dim">asking for ${escapeText(name)} …</div>`;
  const config = Object.entries(details.config).map(([key, value]) =>
    `<tr><th scope="row">${escapeText(key)}</th><td>${escapeText(value ?? "")}</td></tr>`).join("");
  const traces = details.traces.map((trace) =>
    `<details open><summary>trace of ${escapeText(trace.who)}</summary><pre>${escapeText(trace.trace)}</pre></details>`).join("");
  return `<b>${escapeText(name)}</b> <button type="button" data-edit="${escapeText(name)}" aria-label="edit ${escapeText(name)}">edit</button>`
    + `${traces}<table class="cxp-config"><tbody>${config}</tbody></table>`;
}
