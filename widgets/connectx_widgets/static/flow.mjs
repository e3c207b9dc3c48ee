import { escapeText } from "./draw.mjs";
import { duration } from "./geometry.mjs";
import { countText, lagText, rateText, swatch } from "./parts.mjs";

// How records flow, as HTML text: a line for each topic, its sources on the left and its sinks on the right.

const MOST = 30;

export function flowsText(flows, connectors, now) {
  const of = new Map(connectors.map((connector) => [connector.name, connector]));
  const shown = flows.slice(0, MOST).map((flow) => flowText(flow, of, now));
  const rest = flows.length - shown.length;
  return shown.join("") + (rest > 0 ? `<div class="dim">${rest} more topics: filter by a connector's name</div>` : "");
}

function flowText({ topic, sources, sinks, size }, of, now) {
  const name = escapeText(topic);
  const side = (names, text, none) => names.map((one) => text(of.get(one) ?? { name: one }, now)).join("") || `<div class="dim">${none}</div>`;
  return `<div class="cxp-flow" data-topic="${name}"><div class="cxp-from">${side(sources, sourceText, "no source here")}</div><span aria-hidden="true">→</span>`
    + `<div class="cxp-topic"><button type="button" data-peek="${name}" aria-label="newest records of topic ${name}" title="newest records">${name}</button><span class="dim">${size === null ? "" : `${countText(size)} in it`}</span></div>`
    + `<span aria-hidden="true">→</span><div class="cxp-to">${side(sinks, sinkText, "no sink here")}</div></div>`;
}

function sourceText(source) {
  return `<div data-flow="${escapeText(source.name)}">${nameText(source)}<span>${countText(source.committed ?? 0)} in</span><span>${rateText(source)}</span></div>`;
}

function sinkText(sink, now) {
  const known = sink.p50_ms === undefined ? "" : `p50 ${duration(sink.p50_ms)}, p99 ${duration(sink.p99_ms)}`;
  const name = escapeText(sink.name);
  return `<div data-flow="${name}">${nameText(sink)}<button type="button" data-peek="${name}" aria-label="last rows of the target of ${name}" title="last rows of the target">rows</button><span>${countText(sink.committed ?? 0)} out</span><span>${rateText(sink)}</span>`
    + `<span>${lagText(sink, now)}</span><span title="from the time of a record to its commit, over the last minute">${known}</span></div>`;
}

function nameText(connector) {
  const name = escapeText(connector.name);
  return `<span class="cxp-name" title="${name}">${swatch(connector)}${name}</span>`;
}
