// Elements. Text from records and names only ever becomes a text node or an attribute value; the page's policy
// forbids the other ways (innerHTML and its like) as well.

const SVG = "http://www.w3.org/2000/svg";

/** An element: `h("td", { class: "number" }, "12", child)`. Properties that are functions listen to events. */
export function h(tag, properties = {}, ...children) {
  return fill(document.createElement(tag), properties, children);
}

/** The same for SVG. */
export function svg(tag, properties = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), properties, children);
}

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** A copy of a template in `place`, and its parts by their `data-at`. */
export function stamp(templateId, place) {
  place.replaceChildren(document.getElementById(templateId).content.cloneNode(true));
  return parts(place);
}

/** The parts of an element by their `data-at`. */
export function parts(place) {
  return Object.fromEntries([...place.querySelectorAll("[data-at]")].map((part) => [part.dataset.at, part]));
}

/** Set an element's text, and leave it alone when nothing has changed: selections and screen readers stay calm. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Show a message, or hide its element when there is none. */
export function sayOrHide(element, text) {
  say(element, text ?? "");
  element.hidden = !text;
}

/**
 * Rows that stay themselves: one child of `place` for each item, found by its key, so that focus survives.
 * `make(item)` gives a new row, an element with a method `update(item)` of its own.
 */
export function keyed(place, items, keyOf, make) {
  const known = new Map([...place.children].map((row) => [row.key, row]));
  let before = null;
  for (const item of items) {
    const key = keyOf(item);
    let row = known.get(key);
    if (row) known.delete(key);
    else {
      row = make(item);
      row.key = key;
    }
    row.update(item);
    const expected = before ? before.nextSibling : place.firstChild;
    if (row !== expected) place.insertBefore(row, expected);
    before = row;
  }
  for (const row of known.values()) row.remove();
}

/** A table has this many rows at most: a topic may have thousands of partitions. */
const MOST_ROWS = 500;

/** The first rows of a table through `keyed`; `rest` says how many are left out. */
export function keyedFirst(place, rest, items, keyOf, make) {
  keyed(place, items.slice(0, MOST_ROWS), keyOf, make);
  const left = items.length - MOST_ROWS;
  sayOrHide(rest, left > 0 ? `And ${left} more, which only the API shows.` : null);
}

/** A table row whose cells are given as `[class, label]`; `show(cells, item)` writes them. */
export function row(columns, show) {
  const cells = columns.map(([name, label], index) =>
    h(index ? "td" : "th", { class: name, "data-label": label, scope: index ? null : "row" }),
  );
  const element = h("tr", {}, ...cells);
  element.update = (item) => show(cells, item);
  return element;
}

/** Wait until typing has stopped. */
export function debounced(work, ms = 250) {
  let timer = 0;
  return (...args) => {
    clearTimeout(timer);
    timer = setTimeout(() => work(...args), ms);
  };
}
