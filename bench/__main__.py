"""`python -m bench all`, or the names of some cases: one table, and the figures as JSON in `bench/results/`."""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import time
from dataclasses import asdict
from pathlib import Path

import bench.consumers
import bench.conversions
import bench.groups
import bench.http
import bench.lake
import bench.legacy
import bench.records
import bench.size
import bench.streams
import bench.text
import bench.yardstick  # noqa: F401  (importing a module registers its cases)
from bench.case import CASES, Figure

RESULTS = Path(__file__).parent / "results"


HEAD = "| what | measured | median | unit | target | bare loop | |\n|---|---|---|---|---|---|---|"


def show(figure: Figure) -> str:
    """One line of the table."""
    median = f"{statistics.median(figure.samples):.3g}" if figure.samples else ""
    target = "" if figure.target is None else f"≤ {figure.target:g}"
    floor = "" if figure.floor is None else f"{figure.floor:.3g}"
    verdict = "" if figure.target is None else ("ok" if figure.holds else "ABOVE")
    cells = (figure.what, f"{figure.value:.3g}", median, figure.unit, target, floor, verdict)
    return f"| {' | '.join(cells)} |"


def save(figures: list[Figure]) -> Path:
    """Write the figures and what machine they are from; the file's name is the time."""
    RESULTS.mkdir(exist_ok=True)
    file = RESULTS / time.strftime("%Y%m%d-%H%M%S.json")
    machine = {"python": platform.python_version(), "system": platform.platform()}
    data = {"machine": machine, "figures": [asdict(figure) for figure in figures]}
    file.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n")
    return file


def main() -> int:
    """Run the cases that are named; exit code 1 if a target is missed."""
    listing = "\n".join(f"  {one.name:<14} {one.doc}" for one in CASES.values())
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description=f"{__doc__}\n\n{listing}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="+", metavar="case", choices=["all", *CASES])
    parser.add_argument("--repeats", type=int, default=10, help="how often each is measured")
    arguments = parser.parse_args()
    names = list(CASES) if "all" in arguments.names else arguments.names
    print(HEAD)
    figures = []
    for name in names:
        for figure in CASES[name].run(arguments.repeats):
            figures.append(figure)
            print(show(figure), flush=True)
    print(f"\nsaved to {save(figures)}")
    return 0 if all(figure.holds for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
