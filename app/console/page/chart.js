// Charts as inline SVG: a line that fits into a table's row, and one with a scale.

import { h, svg } from "./dom.js";
import { count } from "./format.js";

const WIDTH = 600;
const LONGEST_MS = 5 * 60_000;
const SHORTEST_MS = 20_000;

/** What of a series is in sight: the last minutes, or as long as there are figures. */
function sight(series) {
  const last = series.points.at(-1)?.at ?? 0;
  const points = series.points.filter((point) => last - point.at <= LONGEST_MS);
  return { points, last, span: Math.max(SHORTEST_MS, points.length ? last - points[0].at : 0) };
}

function draw({ line, area }, { points, last, span }, top, height) {
  const x = (at) => (WIDTH * (1 - (last - at) / span)).toFixed(1);
  const y = (value) => (height - 1 - (value / top) * (height - 2)).toFixed(1);
  // One point is no line.
  const path = points.length < 2 ? "" : points.map(({ at, value }, index) => `${index ? "L" : "M"}${x(at)} ${y(value)}`).join("");
  line.setAttribute("d", path);
  area.setAttribute("d", path && `${path}L${x(last)} ${height}L${x(points[0].at)} ${height}Z`);
}

function picture(name, height, label) {
  const properties = { class: name, viewBox: `0 0 ${WIDTH} ${height}`, preserveAspectRatio: "none" };
  return svg("svg", { ...properties, ...(label ? { role: "img", "aria-label": label } : { "aria-hidden": "true" }) });
}

/** A small line without a scale. The figure beside it says the same in words, so it is hidden from readers. */
export function sparkline() {
  const element = picture("sparkline", 40, null);
  const area = svg("path", { class: "area" });
  const line = svg("path", { class: "line" });
  element.append(area, line);
  element.update = (series) => {
    const seen = sight(series);
    draw({ line, area }, seen, Math.max(...seen.points.map((point) => point.value), 1e-9), 40);
  };
  return element;
}

/** A round number at or above a value, for the top of a scale. */
export function niceTop(value) {
  if (value <= 4) return 4;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 2.5, 5, 10].map((step) => step * power).find((step) => step >= value);
}

function ago(span) {
  const seconds = Math.round(span / 1000);
  return seconds < 100 ? `${seconds} s ago` : `${Math.round(seconds / 60)} min ago`;
}

/** A chart of one figure over the last five minutes. `update(series)` draws it. */
export function chart(name) {
  const height = 160;
  const picturePart = picture("plot", height, name);
  const rules = [0, 0.5, 1].map((part) => {
    const y = (height - 1 - part * (height - 2)).toFixed(1);
    return svg("path", { class: "rule", d: `M0 ${y}H${WIDTH}` });
  });
  const area = svg("path", { class: "area" });
  const line = svg("path", { class: "line" });
  picturePart.append(...rules, area, line);
  const scale = [h("span"), h("span"), h("span", {}, "0")];
  const times = ["", "now"].map((text) => h("span", {}, text));
  const element = h(
    "div",
    { class: "chart" },
    h("div", { class: "scale", "aria-hidden": "true" }, ...scale),
    picturePart,
    h("div", { class: "times", "aria-hidden": "true" }, ...times),
  );
  element.update = (series) => {
    const seen = sight(series);
    const highest = Math.max(0, ...seen.points.map((point) => point.value));
    const top = niceTop(highest);
    draw({ line, area }, seen, top, height);
    scale[0].textContent = count(top);
    scale[1].textContent = count(top / 2);
    times[0].textContent = ago(seen.span);
    const said = `${name}: ${count(series.last)} now, ${count(highest)} at most since ${ago(seen.span)}`;
    picturePart.setAttribute("aria-label", said);
  };
  return element;
}
