// The table of connectors when there are many: a filter, an order, and only the rows that are in sight. Pure.

const SPARE = 6;

/** So many rows are not drawn all. */
export const MANY = 30;

const KEYS = {
  name: null,
  state: ({ state, failed }) => (failed.length || state === "FAILED" ? 2 : state === "RUNNING" ? 0 : 1),
  records: ({ committed }) => committed ?? 0,
  rate: ({ rate }) => rate ?? 0,
  lag: ({ lag }) => lag ?? -1,
  errors: ({ skipped, errors, retries, by_zombies: zombies }) => (skipped ?? 0) + (errors ?? 0) + (retries ?? 0) + (zombies ?? 0),
  "last action": ({ action }) => action?.at ?? 0,
};

export const ORDERS = Object.keys(KEYS);

/** Connectors with each word of the filter in their name, state, worker or failure; by name, or the highest first. */
export function selected(connectors, filter, order) {
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean), key = KEYS[order];
  const text = ({ name, state, worker, why, failed }) => `${name} ${state} ${failed.length ? "failed" : ""} ${worker ?? ""} ${why}`.toLowerCase();
  const found = connectors.filter((connector) => { const said = text(connector); return words.every((word) => said.includes(word)); });
  const byName = (a, b) => (a.name < b.name ? -1 : 1);
  return found.sort((a, b) => (key && key(b) - key(a)) || byName(a, b));
}

/** The rows to draw of so many, each of a height, in a box that is scrolled: `from` and `to`, and the space before and after. */
export function inSight(count, height, { scrollTop, clientHeight }) {
  if (count <= MANY) return { from: 0, to: count, before: 0, after: 0 };
  const from = Math.min(Math.max(Math.floor(scrollTop / height) - SPARE, 0), count), to = Math.min(from + Math.ceil(clientHeight / height) + 2 * SPARE, count);
  return { from, to, before: from * height, after: (count - to) * height };
}
