import { escapeText } from "./draw.mjs";

// Data as HTML text: newest rows of a topic or a target, dead letters, and the value of one to correct.

/** `peek`: question, name, filter, and the answer (title, call, columns, rows, places) once it is there. */
export function peekText(peek) {
  const name = escapeText(peek.name), { answer } = peek;
  const head = `<div class="cxp-peek-head"><b>${escapeText(answer?.title ?? `rows of ${peek.name}`)}</b>`
    + `<label>filter <input data-peek-filter value="${escapeText(peek.filter)}" autocomplete="off" title="in the newest 1,000"></label>`
    + `<button type="button" data-peek-again aria-label="read ${name} again">refresh</button><button type="button" data-peek-close aria-label="close rows of ${name}">close</button>`
    + `<code>${escapeText(answer?.call ?? "")}</code>${peek.busy ? '<span class="dim">reading …</span>' : ""}</div>`;
  return head + (answer ? tableText(peek, answer) : "");
}

function tableText(peek, { title, columns, rows, places }) {
  if (!rows.length) return `<div class="dim">${peek.filter ? "no row contains that" : "nothing is there"}</div>`;
  const head = columns.map((column) => `<th>${escapeText(column)}</th>`).join("") + (places ? "<th>action</th>" : "");
  const lines = rows.map((row, number) => {
    const cells = row.map((cell) => `<td title="${escapeText(cell)}">${escapeText(cell)}</td>`).join("");
    return `<tr>${cells}${places ? `<td>${letterButtons(peek.name, places[number])}</td>` : ""}</tr>${places ? correctText(peek, places[number], columns.length + 1) : ""}`;
  });
  return `<div class="cxp-rows" tabindex="0" role="group" aria-label="${escapeText(title)}"><table><thead><tr>${head}</tr></thead><tbody>${lines.join("")}</tbody></table></div>`;
}

function letterButtons(name, [partition, offset]) {
  const place = `data-partition="${partition}" data-offset="${offset}"`, said = `offset ${offset} of partition ${partition}`;
  return `<button type="button" data-correct ${place} aria-label="correct ${said}" title="Show its value to change it.">correct</button>`
    + `<button type="button" data-verb="send_again" data-connector="${escapeText(name)}" ${place} aria-label="send ${said} again" title="Send it as it is to the topic that it came from.">send again</button>`;
}

/** The value of the letter that is being corrected, on a separate line. */
function correctText({ name, letter }, [partition, offset], columns) {
  if (!letter || letter.partition !== partition || letter.offset !== offset) return "";
  const place = `data-partition="${partition}" data-offset="${offset}"`;
  const body = letter.value === null ? '<span class="bad">The value is not text: correct it with cluster.dead_letters(name).send_again(correct).</span>'
    : `<textarea data-corrected rows="4" aria-label="corrected value">${escapeText(letter.value)}</textarea>`
      + `<button type="button" data-verb="send_again" data-connector="${escapeText(name)}" ${place} data-with-value aria-label="send the corrected value">send corrected</button>`;
  return `<tr><td class="cxp-correct" colspan="${columns}">${body}</td></tr>`;
}
