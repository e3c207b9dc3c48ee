import { escapeText } from "./draw.mjs";

// The connector form, from the answer of validation: fields by group, importance first; pure text and plain values.

/** Configuration that a form's inputs stand for: only what differs from the default, secrets left as they are. */
export function configOf(fields, values) {
  const config = {};
  for (const field of fields) {
    const value = values[field.name];
    if (value === undefined || value === "" || (value === field.default && !field.given)) continue;
    config[field.name] = value;
  }
  for (const [name, value] of Object.entries(values)) {
    if (!(name in config) && value !== "" && value !== undefined && !fields.some((field) => field.name === name)) config[name] = value;
  }
  return config;
}

/** Fields out of Connect's validation result; `given` are the keys that the user has set. */
export function fieldsOf(validation, given) {
  return validation.configs.map(({ definition, value }) => ({
    name: definition.name, type: definition.type, required: definition.required, importance: definition.importance,
    group: definition.group || "Common", doc: definition.documentation || "", title: definition.display_name || definition.name,
    default: definition.default_value, choices: value.recommended_values ?? [], errors: value.errors ?? [],
    shown: value.visible !== false, given: definition.name in given, order: definition.order ?? definition.order_in_group ?? 0,
  })).filter((field) => field.name !== "name" && field.name !== "connector.class" && field.shown);
}

/** What validation complains about: of the fields, and of what has no field, such as the name and the class. */
export function errorsOf(validation, fields) {
  const shown = new Set(fields.map((field) => field.name));
  return validation.configs.flatMap(({ definition, value }) =>
    (value.errors ?? []).map((error) => ({ name: definition.name, error, shown: shown.has(definition.name) })));
}

export function formText(form) {
  const known = form.classes.some((item) => item.class === form.class) || !form.class;
  const classes = [...form.classes, ...(known ? [] : [{ class: form.class, type: "as given" }])].map((item) =>
    `<option value="${escapeText(item.class)}"${item.class === form.class ? " selected" : ""}>${escapeText(item.class)} (${escapeText(item.type)})</option>`).join("");
  const fixed = form.editing ? " disabled" : "";
  const head = `<label>name <input data-field="name" value="${escapeText(form.name)}"${fixed}></label>`
    + `<label>class <select data-field="connector.class"${fixed}><option value="">pick a class</option>${classes}</select></label>`
    + (form.busy ? `<span class="dim">${form.sent ? "waiting for the answer …" : "checking …"}</span>` : "")
    + form.errors.filter((found) => !found.shown).map((found) => `<div class="bad" role="alert">${escapeText(found.error)}</div>`).join("")
    + (form.exists && !form.editing ? `<div class="bad" role="alert">There is a connector ${escapeText(form.name)} already; take another name, or edit it in its details.</div>` : "");
  return `<div class="cxp-form-head">${head}</div><div class="cxp-form-body"><div>${groupsText(form)}${form.class ? otherText(form) : ""}</div><div>${callText(form)}</div></div>`;
}

function groupsText(form) {
  const groups = new Map();
  for (const field of form.fields) groups.set(field.group, [...(groups.get(field.group) ?? []), field]);
  return [...groups].map(([name, fields]) => {
    const first = fields.filter((field) => field.importance === "HIGH" || field.required || field.given || field.errors.length);
    const rest = fields.filter((field) => !first.includes(field));
    const more = rest.length ? `<details data-more="${escapeText(name)}"${form.more.has(name) ? " open" : ""}><summary>${rest.length} more</summary>`
      + `${rest.map((field) => fieldText(field, form)).join("")}</details>` : "";
    return `<fieldset><legend>${escapeText(name)}</legend>${first.map((field) => fieldText(field, form)).join("")}${more}</fieldset>`;
  }).join("");
}

/** Keys that the class does not define, such as client overrides and those of transformations. */
function otherText(form) {
  const known = new Set(form.fields.map((field) => field.name));
  const rows = Object.entries(form.values).filter(([name, value]) => !known.has(name) && value !== "" && value !== undefined).map(([name, value]) =>
    `<div class="cxp-field"><label><code>${escapeText(name)}</code> <input data-field="${escapeText(name)}" value="${escapeText(value)}" autocomplete="off"></label></div>`);
  return `<fieldset><legend>Other keys</legend>${rows.join("")}<div class="cxp-field"><input data-other="key" aria-label="another key" placeholder="another key" value="${escapeText(form.other.key)}" autocomplete="off">`
    + ` <input data-other="value" aria-label="its value" placeholder="its value" value="${escapeText(form.other.value)}" autocomplete="off"> <button type="button" data-form="add">add</button></div></fieldset>`;
}

function fieldText(field, form) {
  const name = escapeText(field.name), value = form.values[field.name] ?? "";
  const errors = field.errors.map((error) => `<div class="bad" role="alert">${escapeText(error)}</div>`).join("");
  const hint = `${field.importance.toLowerCase()}, ${field.type.toLowerCase()}${field.default == null ? "" : `, default ${field.default === "" ? "empty" : field.default}`}`;
  return `<div class="cxp-field"><label><span><code>${name}</code>${field.required ? " *" : ""}</span> ${inputText(field, name, value)}</label>`
    + `<div class="dim">${escapeText(field.doc)} <i>(${escapeText(hint)})</i></div>${errors}</div>`;
}

function inputText(field, name, value) {
  const choices = field.type === "BOOLEAN" ? ["true", "false"] : field.choices;
  if (choices.length && choices.length <= 40) {
    const options = ["", ...choices].map((choice) =>
      `<option value="${escapeText(choice)}"${choice === value ? " selected" : ""}>${escapeText(choice === "" ? `default${field.default == null ? "" : ` (${field.default})`}` : choice)}</option>`);
    return `<select data-field="${name}">${options.join("")}</select>`;
  }
  const secret = field.type === "PASSWORD";
  return `<input data-field="${name}" type="${secret ? "password" : "text"}" value="${escapeText(value)}" placeholder="${escapeText(field.default ?? "")}"`
    + ` autocomplete="off">`;
}

function callText(form) {
  const config = { "connector.class": form.class, ...configOf(form.fields, form.values) };
  for (const field of form.fields) if (field.type === "PASSWORD" && field.name in config) config[field.name] = "[hidden]";
  const json = JSON.stringify({ name: form.name, config }, null, 2);
  const call = form.editing ? `cluster["${form.name}"].config.replace(config)` : `cluster.create("${form.name}", config)`;
  const lines = form.diff.map((line) => `<tr><td>${escapeText(line.key)}</td><td>${escapeText(line.before ?? "–")}</td><td>${escapeText(line.after ?? "–")}</td></tr>`).join("");
  const compared = form.editing || form.exists;
  const diff = compared ? `<table class="cxp-diff"><caption>${form.diff.length ? "what would change" : "nothing would change"}</caption>`
    + `${form.diff.length ? "<thead><tr><th>key</th><th>runs with</th><th>would be</th></tr></thead>" : ""}<tbody>${lines}</tbody></table>` : "";
  const wrong = form.errors.length, ready = form.name && form.class && !wrong && !form.busy && (form.editing ? form.diff.length : !form.exists);
  return `<pre>${escapeText(json)}</pre><code>${escapeText(call)}</code>${diff}`
    + `<div class="cxp-form-end"><span class="${wrong ? "bad" : "dim"}">${wrong ? `${wrong} to fix` : form.class ? "valid" : ""}</span>`
    + `<button type="button" data-form="send"${ready ? "" : " disabled"}>${form.editing ? "update" : "create"}</button>`
    + `<button type="button" data-form="close">close</button></div>`;
}
