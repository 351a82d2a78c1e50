// The dialog that resets the committed offsets of a group: first the dry run, then exactly what it has shown.

import { path, send } from "./api.js";
import { openDialog } from "./dialog.js";
import { keyedFirst, row, say } from "./dom.js";
import { count } from "./format.js";
import { showDone, showProblem } from "./problem.js";

const COLUMNS = [["", "Topic"], ["number", "Partition"], ["number", "Committed offset"], ["number strong", "New offset"], ["number", "Change"]];

/** Open the dialog; `topics` are offered as names. `changed()` is called after a reset. */
export function resetOffsets(group, topics, changed) {
  const { at } = openDialog("reset-dialog", `Reset offsets of ${group}`);
  const fields = at.form.elements;
  let shown = null;

  for (const name of topics) {
    const option = document.createElement("option");
    option.value = name;
    at.topics.append(option);
  }

  /** The form has changed: what is shown is no longer what it asks for. */
  function forget() {
    shown = null;
    at.preview.hidden = true;
    at.apply.disabled = true;
    say(at.outcome, "");
    for (const part of [at.offset, at.time, at.shift]) part.hidden = part.dataset.at !== fields.to.value;
  }

  async function preview() {
    try {
      const body = { ...targetOf(fields), dry_run: true };
      shown = (await send("POST", `${path("groups", group)}/offsets:reset`, body)).offsets;
      showProblem(at.trouble, null);
    } catch (error) {
      shown = null;
      showProblem(at.trouble, error, "The gateway cannot be reached. Try again.");
      return;
    }
    keyedFirst(at.rows, at.rest, shown, ({ topic, partition }) => `${topic}/${partition}`, resetRow);
    at.preview.hidden = false;
    const moved = shown.filter(({ before, after }) => before !== after).length;
    at.apply.disabled = !moved;
    const told = `${count(moved)} of ${count(shown.length)} offsets would change. Nothing is changed yet.`;
    showDone(at.outcome, moved ? told : "No offset would change.", "");
  }

  async function apply() {
    const offsets = shown.map(({ topic, partition, after }) => ({ topic, partition, next_offset: after }));
    try {
      // The offsets of the dry run, and not the same reset again: the log may have grown since it was shown.
      await send("PATCH", `${path("groups", group)}/offsets`, { offsets });
      showProblem(at.trouble, null);
    } catch (error) {
      showProblem(at.trouble, error, "The gateway cannot be reached. Whether the offsets were reset is not known; the same reset can be applied again.");
      return;
    }
    at.apply.disabled = true;
    showDone(at.outcome, `${count(offsets.length)} ${offsets.length === 1 ? "offset was" : "offsets were"} committed.`);
    changed();
  }

  for (const event of ["input", "change"]) at.form.addEventListener(event, forget);
  at.form.addEventListener("submit", (event) => (event.preventDefault(), preview()));
  at.apply.addEventListener("click", () => shown && apply());
  forget();
  fields.to.focus();
}

/** What the form asks for. */
function targetOf({ to, offset, time, shift, topic }) {
  const named = topic.value.split(",").map((name) => name.trim()).filter(Boolean);
  const topics = named.length ? { topics: named } : {};
  if (to.value === "offset") return { offset: Number(offset.value || 0), ...topics };
  if (to.value === "shift") return { shift: Number(shift.value || 0), ...topics };
  if (to.value === "time") return { time: time.value ? new Date(time.value).toISOString() : "", ...topics };
  return { to: to.value, ...topics };
}

function resetRow() {
  return row(COLUMNS, (cells, { topic, partition, before, after }) => {
    const change = before === null ? null : after - before;
    say(cells[0], topic);
    say(cells[1], count(partition));
    say(cells[2], before === null ? "none" : count(before));
    say(cells[3], count(after));
    say(cells[4], change === null ? "–" : change > 0 ? `+${count(change)}` : count(change));
  });
}
