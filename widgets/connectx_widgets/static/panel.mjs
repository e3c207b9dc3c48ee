import { clock, clockText, currentState, duration, emptyStore, layout, ofKind, take, takeSnapshot, windowOf } from "./geometry.mjs";
import { escapeText, legendText, svgText } from "./draw.mjs";
import { configOf, errorsOf, fieldsOf, formText } from "./form.mjs";
import { flowsText } from "./flow.mjs";
import { inSight, MANY, ORDERS, selected } from "./table.mjs";
import { countdownText, storiesOf, storyText } from "./story.mjs";
import { peekText } from "./peek.mjs";
import { connectorsText, detailsText, gutterText, headText, noticesText, tasksText, TIPS } from "./parts.mjs";

// One view of the panel: draws the contents of the store, and sends clicks to the kernel.

const SPANS = [["30 s", 30_000], ["2 min", 120_000], ["10 min", 600_000], ["all", null]];
const FRAME_MS = 100, CALM_MS = 1000, NARROW = 720, WIDE = 1200, QUEUED_MS = 1000, SURE_MS = 3000, TYPED_MS = 350, ROW = 25, FEW = 5, FLOWS = 8;
const REST = 6; // of the time that a picture took, the page is left alone as long before the next
const WAITS = "the click waits: the kernel is busy with a cell and takes it when that ends";
const CLOSED = "the cluster is closed: this has no effect";

const SHELL = `
  <div class="cxp-head" role="group" aria-label="cluster"></div>
  <div class="cxp-story" role="group" aria-label="what happened"><div class="cxp-sentence" aria-live="polite"></div><div class="cxp-waits"></div></div>
  <div class="cxp-tools" role="toolbar" aria-label="timeline">
    ${SPANS.map(([text, span]) => `<button type="button" data-span="${span}" aria-label="show ${text}">${text}</button>`).join("")}
    <input type="range" min="0" max="1000" value="1000" aria-label="go back in time">
    <button type="button" data-live>live</button>
    <button type="button" class="cxp-fault" data-verb="add_worker" title="${TIPS.add_worker}">add worker</button>
    <button type="button" data-form="new">new connector</button>
    <span class="cxp-dead"></span><span class="cxp-still" role="status"></span><span class="cxp-past-note" role="status"></span>
  </div>
  <div class="cxp-legends" aria-hidden="true"></div>
  <div class="cxp-plot"><div class="cxp-gutter" role="group" aria-label="workers"></div><div class="cxp-svg" tabindex="0" role="group" aria-label="timeline; arrow keys go from bar to bar"></div></div>
  <details class="cxp-flows" open hidden><summary>data flow</summary><div class="cxp-flow-lines" role="group" aria-label="data flow"></div></details>
  <div class="cxp-peek" role="region" aria-label="data" hidden></div>
  <div class="cxp-choose" role="group" aria-label="choose connectors" hidden><input type="search" data-filter placeholder="filter by name, state, worker" aria-label="filter connectors">
    <label>order <select data-order-by>${ORDERS.map((text) => `<option>${text}</option>`).join("")}</select></label><span class="cxp-count dim" role="status"></span></div>
  <div class="cxp-table"><table class="cxp-connectors" aria-label="connectors"><thead><tr><th data-order="name">connector</th><th data-order="state">state</th><th>worker</th><th>tasks</th><th data-order="records" title="committed in all, the last minute, and records a second over the last 8 s">records</th><th data-order="lag">lag or offset</th><th data-order="errors" title="records skipped and in the dead letter queue, errors, retries, records by zombies">errors</th><th data-order="last action">last action</th><th class="cxp-actions">actions</th></tr></thead><tbody></tbody></table></div>
  <div class="cxp-notices" role="group" aria-label="problems"></div>
  <div class="cxp-details" hidden><div class="cxp-tasks"></div><div class="cxp-known"></div></div>
  <div class="cxp-form" hidden></div>
  <div class="cxp-error" role="alert" hidden><span></span><button type="button" data-dismiss aria-label="dismiss">✕</button></div>
  <div class="cxp-call" role="status" aria-live="polite">The call that a click makes appears here. <span class="cxp-fault">To see a worker's buttons, point at it or tab to it.</span></div>
  <div class="cxp-tip" role="tooltip" hidden></div><div class="cxp-said" role="status"></div>`;

function makeView(store, model, el, viewKey) {
  const look = model.get("look"), source = model.get("source") ?? "the kernel", waits = model.get("waits") ?? WAITS;
  const root = /** @type {any} */ (document.createElement("div"));
  root.className = "cxp";
  root.innerHTML = SHELL;
  el.appendChild(root);
  const find = (selector) => root.querySelector(selector);
  const view = /** @type {{ span: number | null, end: number | null }} */ ({ span: 120_000, end: null });
  const written = new Map(), calm = matchMedia("(prefers-reduced-motion: reduce)");
  let open = null, details = null, asked = "", blamed = null, chosen = null, seen = true, timer = null, calls = 0, pending = new Map();
  let took = 0, filter = "", order = "name", dead = false, foldedFlows = false;
  const expanded = new Set();
  let story = /** @type {number | null} */ (null);
  let peek = /** @type {any} */ (null);
  let form = null, typed = null, held = false, sure = null, unsure = null;
  find(".cxp-legends").innerHTML = legendText(viewKey, look);

  /** Write HTML only where it changed, so that focus and selection survive; and never under a pressed button. */
  function write(selector, text) {
    if (held || written.get(selector) === text) return;
    written.set(selector, text);
    const target = find(selector), focused = target.contains(document.activeElement) ? document.activeElement : null;
    target.innerHTML = text;
    if (focused && focused !== target) successor(target, focused)?.focus({ preventScroll: true });
  }

  /** The element in the place of `before`: the same button, with any label, or else the line of its worker or connector. */
  function successor(target, before) {
    const { worker, connector } = before.dataset, button = JSON.stringify({ ...before.dataset });
    return [...target.querySelectorAll("button")].find((node) => JSON.stringify({ ...node.dataset }) === button)
      ?? [...target.querySelectorAll('[tabindex="-1"]')].find(({ dataset }) => dataset.worker === worker && dataset.connector === connector);
  }

  function draw() {
    const time = clock(store, Date.now());
    const shown = windowOf(store, view, time.now);
    const width = Math.max(find(".cxp-svg").clientWidth, 200);
    const everything = ofKind(store, "connector"), connectors = selected(everything, filter, order);
    const only = filter.trim() ? new Set(connectors.map(({ name }) => name)) : null;
    const drawn = layout(store, shown, width, time.now, look, { only, expanded, dead });
    const head = ofKind(store, "head")[0];
    write(".cxp-head", headText(head ? head.facts : {}));
    root.classList.toggle("cxp-watched", head?.faults === false);
    root.classList.toggle("cxp-readonly", head?.read_only === true);
    write(".cxp-gutter", gutterText(drawn.rows, look.top, shown.past, drawn.tracks, drawn.dense));
    write(".cxp-svg", `<svg class="cxt" width="${width}" height="${drawn.height}">${svgText(drawn, viewKey, look)}</svg>`);
    drawTable(everything, connectors, time.now);
    drawDead(drawn.hidden);
    write(".cxp-notices", noticesText(connectors));
    const flows = ofKind(store, "flow").filter(({ sources, sinks }) => only === null || [...sources, ...sinks].some((name) => only.has(name)))
      .sort((a, b) => (a.topic < b.topic ? -1 : 1));
    if (flows.length > FLOWS && !foldedFlows) [foldedFlows, find(".cxp-flows").open] = [true, false];
    find(".cxp-flows").hidden = !flows.length;
    write(".cxp-flow-lines", flowsText(flows, connectors, time.now));
    if (open !== null && !store.elements.has(`connector:${open}`)) {
      if (blamed === open) find(".cxp-error").hidden = true;
      open = null;
      showDetails();
    }
    if (open !== null && asked !== currentState(store, open)) askDetails();
    if (open !== null) write(".cxp-tasks", tasksText(open, ofKind(store, "task").filter((task) => task.connector === open), details !== null, time.now));
    write(".cxp-sentence", storyText(storiesOf(store), story));
    write(".cxp-waits", countdownText(store, time.now));
    drawTools(time, shown);
    mark();
  }

  function drawTable(everything, connectors, now) {
    const box = find(".cxp-table"), row = box.querySelector("tr[data-connector]"), height = row?.offsetHeight || ROW;
    const { from, to, before, after } = inSight(connectors.length, height, box);
    const none = everything.length ? "no connector matches the filter" : undefined;
    write(".cxp-connectors tbody", connectorsText(connectors.slice(from, to), store.rates, now, open, sure, { before, after, first: from, none }));
    find(".cxp-connectors").setAttribute("aria-rowcount", String(connectors.length + 1));
    root.classList.toggle("cxp-many", everything.length > MANY);
    find(".cxp-choose").hidden = everything.length <= FEW && !filter;
    write(".cxp-count", connectors.length === everything.length ? `${everything.length} connectors` : `${connectors.length} of ${everything.length} connectors`);
    for (const th of root.querySelectorAll("[data-order]")) th.setAttribute("aria-sort", th.dataset.order !== order ? "none" : order === "name" ? "ascending" : "descending");
  }

  function drawDead(hidden) {
    const text = dead ? "hide dead workers" : `${hidden} dead worker${hidden === 1 ? "" : "s"}`;
    write(".cxp-dead", dead || hidden ? `<button type="button" data-dead aria-pressed="${dead}" title="Workers that have ended and do not appear in this window.">${text}</button>` : "");
  }

  function drawTools(time, shown) {
    for (const button of root.querySelectorAll("[data-span]")) {
      button.setAttribute("aria-pressed", String(button.dataset.span === String(view.span)));
    }
    find("[data-live]").setAttribute("aria-pressed", String(view.end === null));
    const slider = find("input[type=range]");
    if (document.activeElement !== slider || view.end === null) {
      slider.value = String(Math.round((1000 * (shown.to - shown.first)) / Math.max(time.now - shown.first, 1)));
    }
    const silence = time.silent ? `no word from ${source} for ${duration(time.silent)}: this picture stands still` : "";
    const waiting = store.live ? silence : `waiting for ${source}: it shows the last saved state`;
    root.classList.toggle("cxp-past", shown.past);
    write(".cxp-past-note", shown.past ? `the past: ${clockText(shown.from)} to ${clockText(shown.to)}; tables show the present` : "");
    write(".cxp-still", store.ended ? "the cluster is closed" : waiting);
  }

  /** Frames only while something moves and the panel is visible. */
  function schedule() {
    if (timer !== null || !seen || document.hidden) return;
    timer = setTimeout(() => {
      timer = null;
      if (!root.isConnected) return;
      const began = performance.now();
      draw();
      took = performance.now() - began;
      const time = clock(store, Date.now());
      if (!time.still && view.end === null) schedule();
      else if (!store.ended && time.silent) setTimeout(schedule, 1000);
    }, calm.matches ? CALM_MS : Math.max(FRAME_MS, REST * took));
  }

  // ------------------------------------------------------------------------------------------------- sentences

  function mark() {
    const tip = find(".cxp-tip");
    const hot = chosen && root.querySelector(`.cxp-svg [data-key="${CSS.escape(chosen)}"]`);
    if (!hot) { tip.hidden = true; return; }
    hot.classList.add("chosen");
    tip.textContent = `${clockText(Number(hot.dataset.at))} ${hot.getAttribute("aria-label")}`;
    tip.hidden = false;
    const box = hot.getBoundingClientRect(), frame = root.getBoundingClientRect();
    const left = Math.min(Math.max(box.left - frame.left, 4), frame.width - tip.offsetWidth - 4);
    const below = box.bottom - frame.top + 6;
    const fits = below + tip.offsetHeight < frame.height;
    tip.style.left = `${Math.max(left, 4)}px`;
    tip.style.top = `${fits ? below : Math.max(box.top - frame.top - tip.offsetHeight - 6, 2)}px`;
  }

  /** Show a story's moment in the middle of the window, with its sign chosen. */
  function jump(seq) {
    const { at } = store.elements.get(`story:${seq}`), { now } = clock(store, Date.now());
    view.span ??= 120_000;
    view.end = at + view.span / 2 < now ? at + view.span / 2 : null;
    story = seq;
    draw();
    choose(`mark:${seq}`);
  }

  function choose(key) {
    chosen = key;
    root.querySelectorAll(".cxp-svg .chosen").forEach((node) => node.classList.remove("chosen"));
    mark();
  }

  function move(step) {
    const hot = [...root.querySelectorAll(".cxp-svg [data-key]")];
    if (!hot.length) return;
    const at = hot.findIndex((node) => node.dataset.key === chosen);
    const next = hot[at < 0 && step < 0 ? hot.length - 1 : (at + step + hot.length) % hot.length];
    choose(next.dataset.key);
    find(".cxp-said").textContent = find(".cxp-tip").textContent;
  }

  // ---------------------------------------------------------------------------------------------------- calls

  function send(message) {
    const id = `${viewKey}-${++calls}`;
    pending.set(id, { ...message, since: Date.now() });
    model.send({ ...message, id });
    setTimeout(() => {
      if (pending.has(id) && !pending.get(id).heard) {
        tellCall(store.ended ? CLOSED : waits);
      }
    }, QUEUED_MS);
    return id;
  }

  function call(data) {
    const message = { kind: "call", verb: data.verb };
    if (data.worker) message.worker = data.worker;
    if (data.connector) message.connector = data.connector;
    if (data.verb === "restart" || data.verb === "restart-failed") {
      message.verb = "restart";
      message.failed = data.verb === "restart-failed";
    }
    if (data.verb === "restart-task") [message.verb, message.task] = ["restart_task", Number(data.task)];
    if (data.verb === "send_again") {
      [message.partition, message.offset] = [Number(data.partition), Number(data.offset)];
      if ("withValue" in data) message.value = find("[data-corrected]").value;
    }
    const asks = data.verb === "delete" && sure !== data.connector;
    clearTimeout(unsure);
    sure = asks ? data.connector : null;
    if (asks) unsure = setTimeout(() => { sure = null; draw(); }, SURE_MS);
    else send(message);
  }

  function tellCall(text, code = "") {
    find(".cxp-call").innerHTML = (code ? `<code>${escapeText(code)}</code> ` : "") + escapeText(text);
  }

  function onMessage(message) {
    if (take(store, message, Date.now()) === "resync") model.send({ kind: "resync" });
    const request = message.id === undefined ? undefined : pending.get(message.id);
    if (message.kind === "called" && request) {
      request.heard = true;
      tellCall("…", message.text);
    }
    if (message.kind === "result" && message.id === null) {
      find(".cxp-error span").textContent = `The panel has failed and stands still: ${message.error}`;
      find(".cxp-error").hidden = false;
    }
    if (message.kind === "result" && request) {
      pending.delete(message.id);
      if (form && (request.kind === "ask" || form.sent === message.id)) {
        form = message.error || form.sent !== message.id ? { ...form, busy: false, sent: null } : null;
        showForm();
      }
      // Details that were being renewed when their connector was deleted are no error of the user's.
      if (["peek", "letters", "letter"].includes(request.question)) onPeekAnswer(request, message);
      if (message.error && request.question === "details" && !request.edit && request.connector !== open) return schedule();
      if (message.error) {
        find(".cxp-error span").textContent = message.next ? `${message.error} ${message.next}` : message.error;
        find(".cxp-error").hidden = false;
        blamed = request.question === "details" ? request.connector : null;
        tellCall(`failed after ${duration(message.took_ms)}`, message.text);
      } else {
        if (request.verb === "send_again" && peek) { peek.letter = null; showPeek(); }
        if (request.verb === "delete" && request.connector === open) { open = null; showDetails(); }
        find(".cxp-error").hidden = true;
        if (open) askDetails();
        tellCall(`done in ${duration(message.took_ms)}, at ${new Date().toLocaleTimeString()}`, message.text);
      }
    }
    if (message.kind === "answer" && request) {
      if (find(".cxp-call").textContent === waits) tellCall("");
      pending.delete(message.id);
      if (request.question === "classes" && form) { form.classes = message.value; showForm(); }
      if (request.question === "validate" && form && request.number === form.number) checked(message.value);
      if (request.question === "details" && request.connector === open) { details = message.value; showDetails(); }
      if (["peek", "letters", "letter"].includes(request.question)) onPeekAnswer(request, message);
      if (request.edit) openForm(request.connector, message.value.config);
    }
    schedule();
  }

  function showDetails() {
    find(".cxp-details").hidden = open === null;
    if (open !== null) write(".cxp-known", detailsText(open, details));
  }

  /** Ask again whenever a worker has read its configuration, or it or a task has changed. */
  function askDetails() {
    asked = currentState(store, open);
    send({ kind: "ask", question: "details", connector: open });
  }

  function toggle(name) {
    open = open === name ? null : name;
    details = null;
    if (open) askDetails();
    showDetails();
    draw();
  }

  // -------------------------------------------------------------------------------------------------- the data

  function openPeek(question, name) {
    peek = { question, name, filter: "", answer: null, letter: null, busy: false };
    askPeek();
    find(".cxp-peek").scrollIntoView({ block: "nearest" });
  }

  function askPeek() {
    peek.busy = true;
    peek.asked = send({ kind: "ask", question: peek.question, name: peek.name, filter: peek.filter });
    showPeek();
  }

  function showPeek() {
    const target = find(".cxp-peek"), focused = /** @type {any} */ (target.contains(document.activeElement) ? document.activeElement : null);
    const inFilter = focused?.matches("[data-peek-filter]"), at = focused?.selectionStart;
    target.hidden = peek === null;
    target.innerHTML = peek ? peekText(peek) : "";
    if (peek && focused) {
      const again = target.querySelector(inFilter ? "[data-peek-filter]" : peek.letter?.value ? "[data-corrected]" : "[data-peek-again]");
      again?.focus({ preventScroll: true });
      if (inFilter) again.setSelectionRange(at, at);
    }
  }

  function onPeekAnswer(request, message) {
    if (!peek || request.name !== peek.name) return;
    if (request.question === "letter" && !message.error) peek.letter = { partition: request.partition, offset: request.offset, ...message.value };
    if (request.question === peek.question && message.id === peek.asked) {
      peek.busy = false;
      if (!message.error) [peek.answer, peek.letter] = [message.value, null];
    }
    showPeek();
  }

  find(".cxp-peek").addEventListener("input", (event) => {
    if (!peek || !event.target.matches("[data-peek-filter]")) return;
    peek.filter = event.target.value;
    clearTimeout(typed);
    typed = setTimeout(() => { if (peek) askPeek(); }, TYPED_MS);
  });

  // ------------------------------------------------------------------------------------------------- the form

  function openForm(name, config) {
    const { "connector.class": picked = "", name: _, ...values } = config;
    form = { name, class: picked, values, editing: name !== "", fields: [], classes: [], diff: [], errors: [], exists: false, busy: false, sent: null, number: 0, more: new Set(), other: { key: "", value: "" } };
    send({ kind: "ask", question: "classes" });
    check();
    showForm();
  }

  function check() {
    if (!form || !form.class) return;
    form.busy = true;
    form.number += 1;
    const config = { ...configOf(form.fields, form.values), "connector.class": form.class };
    send({ kind: "ask", question: "validate", connector: form.name, config, editing: form.editing, number: form.number });
  }

  function checked(answer) {
    form.busy = form.sent !== null;
    form.fields = fieldsOf(answer.validation, form.values);
    form.errors = errorsOf(answer.validation, form.fields);
    [form.diff, form.exists] = [answer.diff, answer.exists];
    showForm();
  }

  function showForm() {
    const target = find(".cxp-form");
    target.hidden = form === null;
    if (form === null) return;
    const focused = /** @type {any} */ (target.contains(document.activeElement) ? document.activeElement : null);
    const field = focused?.dataset.field, at = focused?.selectionStart, scrolled = target.querySelector(".cxp-form-body>div")?.scrollTop ?? 0;
    target.innerHTML = formText(form);
    target.querySelector(".cxp-form-body>div").scrollTop = scrolled;
    const again = field && target.querySelector(`[data-field="${CSS.escape(field)}"]`);
    if (again) { again.focus({ preventScroll: true }); if (at != null && again.setSelectionRange) again.setSelectionRange(at, at); }
  }

  function onField(event) {
    const name = event.target.dataset.field;
    if (!form) return;
    if (event.target.dataset.other !== undefined) form.other[event.target.dataset.other] = event.target.value;
    if (!name) return;
    if (name === "name") form.name = event.target.value.trim();
    else if (name === "connector.class") form.class = event.target.value;
    else form.values[name] = event.target.value;
    clearTimeout(typed);
    typed = setTimeout(() => { check(); showForm(); }, TYPED_MS);
  }

  function onForm(action) {
    if (action === "new") openForm("", {});
    if (action === "close") form = null;
    if (action === "add" && form.other.key.trim()) {
      form.values[form.other.key.trim()] = form.other.value;
      form.other = { key: "", value: "" };
      check();
    }
    if (action === "send") {
      const config = { ...configOf(form.fields, form.values), "connector.class": form.class };
      form.busy = true;
      form.sent = send({ kind: "call", verb: form.editing ? "update" : "create", connector: form.name, config });
    }
    showForm();
  }

  find(".cxp-form").addEventListener("input", onField);
  find(".cxp-form").addEventListener("toggle", (event) => {
    const name = event.target.dataset.more;
    if (form && name !== undefined) form.more[event.target.open ? "add" : "delete"](name);
  }, true);

  // --------------------------------------------------------------------------------------------------- events

  /** Close what was opened last, and go back to the button that opened it. */
  function escape() {
    if (chosen) choose(null);
    else if (peek) { peek = null; showPeek(); }
    else if (form) { onForm("close"); find('[data-form="new"]').focus(); }
    else if (open) {
      const opener = `[data-open="${CSS.escape(open)}"]`;
      toggle(open);
      draw();
      find(opener)?.focus();
    }
  }

  const release = () => { held = false; schedule(); };
  root.addEventListener("pointerdown", (event) => { held = event.button === 0; }); // a menu may swallow the end of others
  document.addEventListener("pointerup", release);
  document.addEventListener("pointercancel", release);
  root.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button || (button.dataset.verb && event.detail > 1)) return; // a double click's second half hits what stands there by then
    if (button.dataset.verb) call(button.dataset);
    else if (button.dataset.open) toggle(button.dataset.open);
    else if (button.dataset.expand) expanded[expanded.has(button.dataset.expand) ? "delete" : "add"](button.dataset.expand);
    else if ("dead" in button.dataset) dead = !dead;
    else if (button.dataset.story) story = Number(button.dataset.story);
    else if (button.dataset.jump) jump(Number(button.dataset.jump));
    else if (button.dataset.peek) openPeek("peek", button.dataset.peek);
    else if (button.dataset.letters) openPeek("letters", button.dataset.letters);
    else if ("peekAgain" in button.dataset) askPeek();
    else if ("peekClose" in button.dataset) { peek = null; showPeek(); }
    else if ("correct" in button.dataset) send({ kind: "ask", question: "letter", name: peek.name, partition: Number(button.dataset.partition), offset: Number(button.dataset.offset) });
    else if (button.dataset.form) onForm(button.dataset.form);
    else if (button.dataset.edit) send({ kind: "ask", question: "details", connector: button.dataset.edit, edit: true });
    else if ("dismiss" in button.dataset) find(".cxp-error").hidden = true;
    else if ("live" in button.dataset) view.end = story = null;
    else if (button.dataset.span) view.span = button.dataset.span === "null" ? null : Number(button.dataset.span);
    draw();
    schedule();
  });
  find("[data-filter]").addEventListener("input", (event) => { filter = event.target.value; find(".cxp-table").scrollTop = 0; draw(); });
  find("[data-order-by]").addEventListener("change", (event) => { order = event.target.value; draw(); });
  find(".cxp-connectors thead").addEventListener("click", (event) => {
    const th = event.target.closest("[data-order]");
    if (!th) return;
    order = find("[data-order-by]").value = th.dataset.order;
    draw();
  });
  find(".cxp-table").addEventListener("scroll", () => { if (ofKind(store, "connector").length > FEW) draw(); }, { passive: true });
  find("input[type=range]").addEventListener("input", (event) => {
    const time = clock(store, Date.now()), shown = windowOf(store, view, time.now), share = Number(event.target.value) / 1000;
    view.end = share >= 1 ? null : shown.first + share * (time.now - shown.first);
    draw();
    schedule();
  });
  find(".cxp-svg").addEventListener("mouseover", (event) => choose(event.target.closest?.("[data-key]")?.dataset.key ?? null));
  find(".cxp-svg").addEventListener("mouseleave", () => choose(null));
  find(".cxp-svg").addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (step) { event.preventDefault(); move(step); }
  });
  find(".cxp-svg").addEventListener("blur", () => choose(null));
  root.addEventListener("keydown", (event) => {
    if (event.key === "Escape") escape();
    if (event.key === "Enter" && event.repeat && event.target.closest("[data-verb]")) event.preventDefault(); // a key held down is one click
  });
  const resized = new ResizeObserver(() => {
    root.classList.toggle("cxp-narrow", root.clientWidth < NARROW);
    find(".cxp-connectors").classList.toggle("cxp-tight", root.clientWidth < WIDE);
    schedule();
  });
  resized.observe(root);
  const visible = new IntersectionObserver((entries) => { seen = entries[entries.length - 1].isIntersecting; schedule(); });
  visible.observe(root);
  document.addEventListener("visibilitychange", schedule);
  draw();
  schedule();
  return {
    onMessage,
    draw: schedule,
    close() {
      resized.disconnect();
      visible.disconnect();
      document.removeEventListener("visibilitychange", schedule);
      document.removeEventListener("pointerup", release);
      document.removeEventListener("pointercancel", release);
      [timer, typed, unsure].forEach(clearTimeout);
      root.remove();
    },
  };
}

export default () => {
  const store = emptyStore();
  let views = 0;
  return {
    initialize({ model }) {
      const known = takeSnapshot(store, model.get("snapshot"), Date.now());
      model.send({ kind: known === "resync" ? "resync" : "hello" });
      model.send({ kind: "ask", question: "series", id: "series" });
    },
    render({ model, el }) {
      const view = makeView(store, model, el, `cx${Math.random().toString(36).slice(2, 8)}${++views}`);
      const hear = (message) => view.onMessage(message);
      const see = () => {
        if (takeSnapshot(store, model.get("snapshot"), Date.now()) === "resync") model.send({ kind: "resync" });
        view.draw();
      };
      model.on("msg:custom", hear);
      model.on("change:snapshot", see);
      see(); // messages that came while no cell showed the panel were not received
      return () => { model.off("msg:custom", hear); model.off("change:snapshot", see); view.close(); };
    },
  };
};
