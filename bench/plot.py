"""Pictures of results: what work costs against its target, and against a bare loop. Needs matplotlib (`[bench]`)."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_CURVE = re.compile(r"Spark scan, local\[(\d+)\], (\d+) partitions?")


def draw(files: Sequence[Path], results: Path, plots: Path) -> list[Path]:
    """Draw result files, the newest of `results` if none is given, as SVG into `plots`; the files written.

    Where several files have a figure, their bars stand beside each other, each under the name of its server.
    """
    chosen = list(files) or sorted(results.glob("*.json"))[-1:]
    if not chosen:
        raise SystemExit("There are no results yet: run `python -m bench all` first.")
    runs = [json.loads(file.read_text()) for file in chosen]
    names = [run.get("server", "sluice") for run in runs]
    plots.mkdir(exist_ok=True)
    drawn = []
    for name, title, share, scale in (
        ("targets", "measured, in parts of the target (1 is the most it may be)", _of_target, "linear"),
        # From a tenth to a thousand: on a line, most of them could not be told apart.
        ("yardsticks", "measured, in parts of what a bare loop takes for the same bytes", _of_floor, "log"),
    ):
        values = [{f["what"].strip(): v for f in run["figures"] if (v := share(f))} for run in runs]
        if any(values):
            drawn.append(_bars(plots / f"{name}.svg", title, names, values, scale))
    lines = _curves([figure for run in runs for figure in run["figures"]])
    if lines:
        drawn.append(_curve(plots / "partitions.svg", lines))
    return drawn


def _curves(figures: list[dict[str, Any]]) -> dict[int, dict[int, float]]:
    """Million rows a second by cores and partitions, out of the case `spark_curve`."""
    lines: dict[int, dict[int, float]] = {}
    for figure in figures:
        if found := _CURVE.fullmatch(figure["what"]):
            lines.setdefault(int(found[1]), {})[int(found[2])] = 1 / figure["value"]
    return lines


def _curve(file: Path, lines: dict[int, dict[int, float]]) -> Path:
    pyplot = _pyplot()
    picture, axes = pyplot.subplots(figsize=(6, 3.2), layout="constrained")
    for cores, points in sorted(lines.items()):
        axes.plot(list(points), list(points.values()), marker="o", label=f"local[{cores}]")
    places = sorted({count for points in lines.values() for count in points})
    axes.set_xscale("log", base=2)
    axes.set_xticks(places, [str(count) for count in places])
    axes.set_ylim(bottom=0)
    axes.set_xlabel("partitions")
    axes.set_title("Spark: scan over the wire, million rows a second", fontsize=9)
    axes.legend(fontsize=7)
    return _saved(picture, file)


def _of_target(figure: dict[str, Any]) -> float | None:
    return figure["value"] / figure["target"] if figure["target"] else None


def _of_floor(figure: dict[str, Any]) -> float | None:
    return figure["value"] / figure["floor"] if figure["floor"] and figure["unit"] != "offsets/s" else None


def _bars(file: Path, title: str, names: list[str], values: list[dict[str, float]], scale: str) -> Path:
    pyplot = _pyplot()
    labels = list(dict.fromkeys(label for one in values for label in one))
    height = 0.8 / len(values)
    picture, axes = pyplot.subplots(figsize=(9, 0.6 + 0.3 * len(labels) * len(values)), layout="constrained")
    for index, one in enumerate(values):
        places = [labels.index(label) + index * height for label in one]
        bars = axes.barh(places, list(one.values()), height, label=names[index])
        axes.bar_label(bars, fmt="%.3g", padding=2, fontsize=7)
    axes.set_yticks([i + height * (len(values) - 1) / 2 for i in range(len(labels))], labels, fontsize=7)
    axes.invert_yaxis()
    axes.set_xscale(scale)
    axes.margins(x=0.08, y=0.01)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_title(title, fontsize=9)
    if len(values) > 1:
        axes.legend(fontsize=7)
    return _saved(picture, file)


def _pyplot() -> Any:
    import matplotlib

    matplotlib.use("svg")
    # The same picture for the same figures, or every run would be a change.
    matplotlib.rcParams["svg.hashsalt"] = "sluice"
    # Letters as letters: as outlines they are nine tenths of a file.
    matplotlib.rcParams["svg.fonttype"] = "none"
    from matplotlib import pyplot

    return pyplot


def _saved(picture: Any, file: Path) -> Path:
    picture.savefig(file, metadata={"Date": None})
    _pyplot().close(picture)
    return file
