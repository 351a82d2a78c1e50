"""`python -m bench all`, or the names of some cases: one table, and the figures as JSON in `bench/results/`.

With --kafka or --rest the same load runs against another server: see `bench.peer`. `python -m bench plot`
draws the newest results, or those that --results names. `python -m bench compare` loads one of ours and a real Kafka
in turn and prints ratios: see `bench.compare`. `python -m bench for-tests` starts what a test may use in place of a
Kafka: see `bench.for_tests`.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import time
from dataclasses import asdict
from pathlib import Path

import bench.clients
import bench.consumers
import bench.conversions
import bench.groups
import bench.guessing
import bench.http
import bench.idle_memory
import bench.kafka07
import bench.lake
import bench.line
import bench.logins
import bench.records
import bench.replication
import bench.rules
import bench.size
import bench.spark
import bench.streams
import bench.tls
import bench.transactions
import bench.upstream
import bench.upstream_memory
import bench.workers
import bench.yardstick  # noqa: F401  (importing a module registers its cases)
from bench import peer
from bench.case import CASES, Figure

RESULTS = Path(__file__).parent / "results"
PLOTS = Path(__file__).parent / "plots"

HEAD = (
    "| what | measured | median | unit | target | bare loop | in those | |\n|---|---|---|---|---|---|---|---|"
)


def show(figure: Figure) -> str:
    """One line of the table."""
    median = f"{statistics.median(figure.samples):.3g}" if figure.samples else ""
    target = "" if figure.target is None else f"≤ {figure.target:g}"
    floor = "" if figure.floor is None else f"{figure.floor:.3g}"
    ratio = "" if figure.in_floors is None else f"{figure.in_floors:.3g}"
    verdict = "" if figure.target is None else ("ok" if figure.holds else "ABOVE")
    cells = (figure.what, f"{figure.value:.3g}", median, figure.unit, target, floor, ratio, verdict)
    return f"| {' | '.join(cells)} |"


def save(figures: list[Figure], server: str) -> Path:
    """Write the figures, whose they are and what machine they are from; the file's name is the time."""
    RESULTS.mkdir(exist_ok=True)
    file = RESULTS / time.strftime("%Y%m%d-%H%M%S.json")
    machine = {"python": platform.python_version(), "system": platform.platform()}
    listed = [{**asdict(figure), "in_floors": figure.in_floors} for figure in figures]
    data = {"machine": machine, "server": server, "figures": listed}
    file.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n")
    return file


def main() -> int:
    """Run the cases that are named; exit code 1 if a target is missed."""
    if sys.argv[1:2] == ["compare"]:
        from bench import compare  # it needs a JDK and the jars of Kafka, which no case needs

        return compare.main(sys.argv[2:])
    if sys.argv[1:2] == ["for-tests"]:
        from bench import for_tests  # the same

        return for_tests.main(sys.argv[2:])
    arguments = _arguments()
    if arguments.names == ["plot"]:
        from bench.plot import draw

        print("\n".join(f"drawn: {file}" for file in draw(arguments.results, RESULTS, PLOTS)))
        return 0
    servers = {"kafka": arguments.kafka, "rest": arguments.rest}
    others = any(servers.values())
    if others:
        peer.choose(arguments.kafka, arguments.rest, arguments.pid, arguments.topic)
    names = list(CASES) if "all" in arguments.names else arguments.names
    if others:
        able = [name for name in names if servers.get(CASES[name].protocol or "")]
        if (unable := [name for name in names if name not in able]) and "all" not in arguments.names:
            sys.exit(f"Only our own broker can be measured by: {', '.join(unable)}.")
        names = able
    print(HEAD)
    figures = []
    try:
        for name in names:
            for figure in CASES[name].run(arguments.repeats):
                figures.append(figure)
                print(show(figure), flush=True)
    finally:
        peer.clean_up()
    server = " ".join(filter(None, servers.values())) or "sluice"
    print(f"\nsaved to {save(figures, server)}")
    return 0 if all(figure.holds for figure in figures) else 1


def _arguments() -> argparse.Namespace:
    listing = "\n".join(
        f"  {one.name:<16} {one.doc}" + (f" [--{one.protocol}]" if one.protocol else "")
        for one in CASES.values()
    )
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description=f"{__doc__}\n\n{listing}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="+", metavar="case", choices=["all", "plot", *CASES])
    parser.add_argument("--repeats", type=int, default=10, help="how often each is measured")
    parser.add_argument("--kafka", metavar="HOST:PORT", help="load this Kafka broker instead of one of ours")
    parser.add_argument("--rest", metavar="URL", help="load this REST Proxy v2 instead of one of ours")
    parser.add_argument(
        "--pid", type=int, help="its process on this machine: processor time instead of wall time"
    )
    parser.add_argument(
        "--topic", help="a topic of one partition that is there; else one is made, and deleted"
    )
    parser.add_argument(
        "--results",
        nargs="*",
        type=Path,
        default=[],
        help="result files to draw; the newest if none is named",
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
