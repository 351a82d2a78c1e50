// What changes a topic: its settings, its number of partitions, its deletion. Each in a dialog.

import { exchange, path, reasonOf } from "./api.js";
import { openDialog } from "./dialog.js";
import { h, say } from "./dom.js";
import { count, duration, size } from "./format.js";
import { showDone, showProblem } from "./problem.js";
import { sums } from "./topics.js";

const SOURCES = { topic: "this topic", broker: "broker", default: "default" };

/** Send a change for the version of the topic that `etag` names; null when it was refused, which `place` tells. */
async function change(method, topic, body, etag, place) {
  try {
    const answer = await exchange(method, path("topics", topic), { body, headers: etag ? { "If-Match": etag } : {} });
    showProblem(place, null);
    return answer;
  } catch (error) {
    showProblem(place, error, "The gateway cannot be reached. Whether the topic was changed is not known.");
    return { error };
  }
}

/** Open a dialog that needs the topic as it is now: `show(at, close, { body, etag })`. */
async function openFor(templateId, title, topic, show) {
  const { at, close } = openDialog(templateId, title);
  try {
    show(at, close, await exchange("GET", path("topics", topic)));
  } catch (error) {
    showProblem(at.trouble, error, reasonOf(error));
  }
}

// --- settings --------------------------------------------------------------------------------------------

/** Edit the settings of a topic; `changed()` is called after each change. */
export function editSettings(topic, changed) {
  return openFor("settings-dialog", `Settings of ${topic}`, topic, (at, close, answer) => {
    let { body, etag } = answer;
    let rows = [];

    function draw() {
      rows = Object.entries(body.effective_configs).map(([name, setting]) => settingRow(name, setting, settle));
      at.list.replaceChildren(...rows.map(({ element }) => element));
      settle();
    }

    function settle() {
      const text = at.find.value.trim().toLowerCase();
      for (const row of rows) row.element.hidden = !row.matches(text) || (at.own.checked && row.source !== "topic" && !row.change);
      const changes = rows.map(({ change }) => change).filter(Boolean);
      at.save.disabled = at.discard.disabled = !changes.length;
      if (changes.length) showDone(at.outcome, changes.join("; "), "");
      else if (at.outcome.dataset.kind !== "good") say(at.outcome, "");
    }

    at.find.addEventListener("input", settle);
    at.own.addEventListener("change", settle);
    at.discard.addEventListener("click", () => (showProblem(at.trouble, null), draw(), at.find.focus()));
    at.form.addEventListener("submit", async (event) => {
      event.preventDefault();
      const configs = Object.fromEntries(rows.filter((row) => row.change).map((row) => [row.name, row.value]));
      if (!Object.keys(configs).length) return;
      const done = await change("PATCH", topic, { configs }, etag, at.trouble);
      for (const row of rows) row.blame(done.error);
      if (done.error) return;
      ({ body, etag } = done);
      showDone(at.outcome, "Saved.");
      draw();
      at.find.focus();
      changed();
    });
    draw();
    at.find.focus();
  });
}

/** One setting: its value in a field, where the value comes from, what it means. `changed()` is called on input. */
function settingRow(name, { value, source, type, doc }, changed) {
  const id = `setting-${name}`;
  const field = fieldFor(type, id, value);
  const hint = h("span", { class: "quiet hint" });
  const element = h("div", { class: "setting" });
  let cleared = false;
  const show = () => {
    say(hint, readable(name, field.value));
    element.classList.toggle("changed", row.change !== null);
    changed();
  };
  const clear = h("button", { type: "button", class: "plain", "aria-pressed": "false", click: () => {
    cleared = !cleared;
    clear.setAttribute("aria-pressed", String(cleared));
    field.disabled = cleared;
    show();
  } }, "Use default");
  const row = {
    name, source, element,
    get value() {
      return cleared ? null : field.value;
    },
    get change() {
      if (cleared) return `${name}: the default`;
      return field.value === value ? null : `${name}: ${field.value || "empty"}`;
    },
    matches: (text) => `${name} ${doc}`.toLowerCase().includes(text),
    blame(error) {
      const wrong = error && this.change !== null && JSON.stringify(error.problem ?? {}).includes(name);
      if (wrong) field.setAttribute("aria-invalid", "true");
      else field.removeAttribute("aria-invalid");
    },
  };
  field.addEventListener("input", show);
  say(hint, readable(name, value));
  element.append(
    h("div", { class: "setting-head" }, h("label", { class: "code", for: id }, name),
      h("span", { class: source === "topic" ? "tag own" : "tag" }, SOURCES[source] ?? source)),
    h("div", { class: "setting-value" }, field, hint, source === "topic" ? clear : null),
    h("p", { class: "quiet hint", id: `${id}-doc` }, doc),
  );
  return row;
}

function fieldFor(type, id, value) {
  const about = { id, "aria-describedby": `${id}-doc` };
  if (type === "BOOLEAN") {
    const options = ["true", "false"].map((one) => h("option", { value: one, selected: one === value }, one));
    return h("select", about, ...options);
  }
  const numeric = ["INT", "LONG", "SHORT"].includes(type) ? "text" : null;
  const field = h("input", { ...about, class: "code", inputmode: numeric, autocomplete: "off", spellcheck: "false", autocapitalize: "off" });
  field.value = value;
  return field;
}

/** A number of milliseconds or bytes as people read it; empty for all others. */
function readable(name, text) {
  if (!/^[1-9]\d{3,15}$/.test(text)) return "";
  if (name.endsWith(".ms")) return `= ${duration(Number(text))}`;
  return name.endsWith(".bytes") ? `= ${size(Number(text))}` : "";
}

// --- partitions ------------------------------------------------------------------------------------------

/** Add partitions to a topic. */
export function addPartitions(topic, changed) {
  return openFor("partitions-dialog", `Add partitions to ${topic}`, topic, (at, close, { body, etag }) => {
    const { partitions } = at.form.elements;
    say(at.now, count(body.partitions));
    partitions.min = String(body.partitions + 1);
    partitions.value = String(body.partitions + 1);
    partitions.select();
    at.form.addEventListener("submit", async (event) => {
      event.preventDefault();
      const done = await change("PATCH", topic, { partitions: Number(partitions.value) }, etag, at.trouble);
      if (done.error) return;
      close();
      changed();
    });
  });
}

// --- deletion --------------------------------------------------------------------------------------------

/** Delete a topic, after its name was typed; `deleted()` is called then. */
export function deleteTopic(topic, deleted) {
  return openFor("delete-dialog", `Delete ${topic}`, topic, (at, close, { body, etag }) => {
    const { confirm } = at.form.elements;
    const records = body.partition_details.reduce((sum, one) => sum + one.latest - one.earliest, 0);
    const { bytes } = sums(body);
    say(at.held, `${count(records)} ${records === 1 ? "record" : "records"} (${size(bytes)})`);
    say(at.name, topic);
    const settle = () => (at.delete.disabled = confirm.value !== topic);
    confirm.addEventListener("input", settle);
    settle();
    confirm.focus();
    at.form.addEventListener("submit", async (event) => {
      event.preventDefault();
      if (confirm.value !== topic) return;
      const done = await change("DELETE", topic, undefined, etag, at.trouble);
      if (done.error) return;
      close();
      deleted();
    });
  });
}
