// Dialogs that are made of a template, one at a time, and removed when they close.

import { h, stamp } from "./dom.js";

/** Open a dialog. Returns its parts, and `close()`; focus returns to where it was when it closes. */
export function openDialog(templateId, title) {
  const element = h("dialog", { class: "sheet", "aria-labelledby": "dialog-title" });
  const at = stamp(templateId, element);
  const close = () => element.close();
  const closing = h("button", { type: "button", "data-at": "close", click: close }, "Close");
  element.prepend(h("div", { class: "dialog-head" }, h("h2", { id: "dialog-title" }, title), closing));
  at.cancel?.addEventListener("click", close);
  element.addEventListener("close", () => element.remove());
  document.body.append(element);
  element.showModal();
  return { at, close };
}

/** Close whatever is open: the view below is another one. */
export function closeDialogs() {
  for (const dialog of document.querySelectorAll("dialog[open]")) dialog.close();
}
