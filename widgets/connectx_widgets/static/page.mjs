import widget from "./panel.mjs";

// The panel without a notebook: a model like that of a widget, over server-sent events and POST.

const listeners = new Set(), lost = /** @type {HTMLElement} */ (document.getElementById("lost"));
const state = {
  look: JSON.parse(document.getElementById("look")?.textContent ?? ""),
  snapshot: { seq: 0, now: Date.now(), elements: {}, whole: false }, // so that the panel asks for everything
  source: "connectx",
  waits: "connectx has not answered yet",
};
const model = {
  get: (name) => state[name],
  send,
  on: (name, listener) => { if (name === "msg:custom") listeners.add(listener); },
  off: (name, listener) => listeners.delete(listener),
};

function send(message) {
  const request = { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(message) };
  fetch("messages", request).then(({ ok }) => { lost.hidden = ok; }, () => { lost.hidden = false; });
}

const panel = widget(), events = new EventSource("events");
let isShown = false;
events.addEventListener("ready", () => {
  lost.hidden = true;
  if (isShown) send({ kind: "resync" });
  else {
    isShown = true;
    panel.initialize({ model });
    panel.render({ model, el: document.getElementById("panel") });
  }
  send({ kind: "hello" });
});
events.addEventListener("error", () => { lost.hidden = false; });
events.addEventListener("message", ({ data }) => {
  const message = JSON.parse(data);
  listeners.forEach((listener) => listener(message));
});
