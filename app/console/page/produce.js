// The form that writes one record.

import { path, send } from "./api.js";
import { h, stamp } from "./dom.js";
import { count } from "./format.js";
import { showDone, showProblem } from "./problem.js";

const UNSURE = "The gateway cannot be reached. Whether it has the record is not known; producing the same again writes it once.";

/** Show the form for a topic; `written()` is called after each record. */
export function showProduce(place, topic, written) {
  const at = stamp("produce-part", place);
  const fields = at.form.elements;

  // A typed key means that the record has one; "no key" clears it.
  fields.key.addEventListener("input", () => {
    if (fields.key.value && fields.key_encoding.value === "none") fields.key_encoding.value = "text";
    showKinds();
  });
  fields.key_encoding.addEventListener("change", () => {
    if (fields.key_encoding.value === "none") fields.key.value = "";
    showKinds();
  });
  fields.value_encoding.addEventListener("change", showKinds);
  at["add-header"].addEventListener("click", () => addHeader(at));
  fields.value.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      at.form.requestSubmit();
    }
  });

  function showKinds() {
    fields.key.placeholder = fields.key_encoding.value === "none" ? "no key" : "empty";
    fields.value.disabled = fields.value_encoding.value === "none";
  }

  let busy = false;
  // What was sent without an answer, and its key: when the same is sent again, the gateway knows whether it has it.
  let unsure = { text: "", key: "" };
  at.form.addEventListener("submit", async (event) => {
    event.preventDefault();
    // A second click does not write a second record; a disabled button would lose the focus.
    if (busy) return;
    busy = true;
    for (const field of [fields.key, fields.value]) field.removeAttribute("aria-invalid");
    try {
      const record = recordOf(fields, at.headers);
      const text = JSON.stringify(record);
      if (unsure.text !== text) unsure = { text, key: randomKey() };
      const answer = await send("POST", path("topics", topic, "records"), record, { "Idempotency-Key": unsure.key });
      const { partition, offset } = answer.records[0];
      unsure = { text: "", key: "" };
      showDone(at.outcome, `Written: partition ${partition}, offset ${count(offset)}.`);
      written();
    } catch (error) {
      blame(error, fields);
      showProblem(at.outcome, error, error instanceof FormError ? error.message : UNSURE);
    }
    busy = false;
  });
}

class FormError extends Error {
  constructor(field, message) {
    super(message);
    this.field = field;
  }
}

/** The record that the form describes. Throws FormError. */
function recordOf(fields, headers) {
  const record = { value: null };
  const keyKind = fields.key_encoding.value;
  if (keyKind !== "none") Object.assign(record, { key: fields.key.value, key_encoding: keyKind });
  const kind = fields.value_encoding.value;
  if (kind === "json") checkJson(fields.value.value);
  // JSON is sent as its text, checked here: so its bytes are those in the form, white space included.
  if (kind !== "none") Object.assign(record, { value: fields.value.value, value_encoding: kind === "base64" ? kind : "text" });
  if (fields.partition.value !== "") record.partition = Number(fields.partition.value);
  const named = [...headers.children].map((row) => row.read()).filter(({ name, value }) => name || value);
  if (named.length) record.headers = named;
  return record;
}

function checkJson(text) {
  let value;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw new FormError("value", `The value is not JSON: ${error.message}.`);
  }
  if (value === null) throw new FormError("value", "JSON's null would be read like no value. Choose “null (tombstone)” to write one.");
}

/** Mark the field that an error names. */
function blame(error, fields) {
  const named = error instanceof FormError ? error.field : error.problem?.errors?.[0]?.field;
  if (named !== "key" && named !== "value") return;
  fields[named].setAttribute("aria-invalid", "true");
  fields[named].focus();
}

function randomKey() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

function addHeader(at) {
  const options = { autocomplete: "off", spellcheck: "false", autocapitalize: "off", class: "code" };
  const name = h("input", { ...options, placeholder: "name", "aria-label": "Header's name" });
  const value = h("input", { ...options, placeholder: "value", "aria-label": "Header's value" });
  const remove = h("button", { type: "button", class: "plain", "aria-label": "Remove this header", click: () => {
    row.remove();
    at["add-header"].focus();
  } }, "Remove");
  const row = h("div", { class: "header-row" }, name, value, remove);
  row.read = () => ({ name: name.value, value: value.value });
  at.headers.append(row);
  name.focus();
}
