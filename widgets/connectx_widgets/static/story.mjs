import { escapeText } from "./draw.mjs";
import { clockText, duration, ofKind } from "./geometry.mjs";

// The story line, as HTML text: one sentence of what happened, and how long lost work waits.

/** Sentences of what happened, oldest first. */
export function storiesOf(store) {
  return ofKind(store, "story").sort((a, b) => a.at - b.at || a.seq - b.seq);
}

/** One of the stories with buttons to the ones around it; `chosen` is its sequence number, null for the newest. */
export function storyText(stories, chosen) {
  if (!stories.length) return '<span class="dim">Nothing has happened yet: no fault, no failure.</span>';
  const found = stories.findIndex(({ seq }) => seq === chosen), at = found < 0 ? stories.length - 1 : found, story = stories[at];
  const step = (to, sign, said) => stories[to]
    ? `<button type="button" class="cxp-step" data-story="${stories[to].seq}" aria-label="${said}" title="${said}">${sign}</button>` : stories.length > 1 ? '<span class="cxp-step"></span>' : "";
  return `${step(at - 1, "‹", "the story before")}${step(at + 1, "›", "the story after")}<time class="dim">${clockText(story.at)}</time>`
    + `<button type="button" class="cxp-jump" data-jump="${story.seq}" title="Show it in the timeline: ${escapeText(story.sentence)}">${escapeText(story.sentence)}</button>`;
}

/** Until when the work of dead workers waits, counted down. */
export function countdownText(store, now) {
  return ofKind(store, "lost").map(({ worker, work, due, waits }) => {
    const what = `${work.slice(0, 3).join(", ")}${work.length > 3 ? ` and ${work.length - 3} more` : ""}`;
    const held = due !== null && due > now;
    const [moves, is] = work.length > 1 ? ["move", "are"] : ["moves", "is"];
    const when = held ? `${moves} in <b>${duration(Math.round((due - now) / 100) * 100)}</b> at the latest` : `${is} being handed over`;
    return `<span class="cxp-countdown" title="${escapeText(held ? waits.join(", then ") : "")}">${escapeText(what)} of ${escapeText(worker)} ${when}</span>`;
  }).join("");
}
