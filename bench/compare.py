"""`python -m bench compare`: the same clients load a broker of ours and a real Kafka in turn; a table with ratios.

One server runs at a time, each run over an empty directory: ours, Kafka, Kafka that flushes before each answer, ours
again and so on. Each load runs once before it is measured: a JVM compiles what it does often. The figures are
medians of the runs with their spread, and so are the ratios, which are taken within each run.
`--markdown docs/proof/benchmarks.md` writes the table into the documentation, between the marks of its chapter.
Needs a JDK and what `python -m tests.peers.fetch kafka-4.1` fetches.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.compare_loads import LOADS, RELEASE, SERVERS, SHORT, WHOLE, Line, Size, running
from tests.peers.fetch import SETS, is_fetched

OURS, KAFKA = "sluice", "kafka"
MARKS = (
    "<!-- compare: python -m bench compare --markdown docs/proof/benchmarks.md -->\n",
    "<!-- /compare -->",
)
# Above this share of the machine, what others did meanwhile is in the figures.
QUIET = 0.1


@dataclass
class Comparison:
    """What was measured: samples, one for each run, by server and by `load.line`."""

    servers: list[str]
    loads: list[str]
    samples: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    about: dict[str, Any] = field(default_factory=dict)

    def add(self, server: str, load: str, figures: dict[str, float]) -> None:
        """Keep what one turn of a load has found."""
        for key, figure in figures.items():
            self.samples.setdefault(server, {}).setdefault(f"{load}.{key}", []).append(figure)

    def ratios(self, name: str, other: str) -> list[float]:
        """Our figure in that of the other server, run by run."""
        pairs = zip(self.samples[OURS][name], self.samples[other][name], strict=True)
        return [ours / theirs for ours, theirs in pairs]

    def verdict(self, name: str, line: Line) -> tuple[str, bool]:
        """The target in words, and whether it is missed; a short comparison is not judged."""
        if line.limit is not None:
            bound, found, where = line.limit, self.samples[OURS][name], ""
        elif line.in_kafkas is not None and KAFKA in self.servers:
            bound, found, where = line.in_kafkas, self.ratios(name, KAFKA), " × Kafka"
        else:
            return "", False
        median = statistics.median(found)
        missed = median < bound if line.more else median > bound
        words = f"{'≥' if line.more else '≤'} {bound:g}{where}"
        if self.about["short"]:
            return words, False
        return f"{words}, {'**missed**' if missed else 'met'}", missed


class Neighbors:
    """How much of the machine others used since this was made, processes that this one has waited for left out."""

    def __init__(self) -> None:
        self._begin = self._now()

    def share(self) -> float:
        """Return the share of all cores, 0 to 1."""
        (busy, whole, own), (busy_then, whole_then, own_then) = self._now(), self._begin
        return max(0.0, (busy - busy_then - (own - own_then)) / max(whole - whole_then, 0.01))

    @staticmethod
    def _now() -> tuple[float, float, float]:
        """Seconds that all cores worked (stolen time included), existed, and worked for us: proc(5)."""
        ticks = [int(one) for one in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
        whole, idle = sum(ticks), ticks[3] + ticks[4]
        second = os.sysconf("SC_CLK_TCK")
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return (whole - idle) / second, whole / second, sum(one.ru_utime + one.ru_stime for one in used)


def compare(servers: list[str], loads: list[str], runs: int, size: Size) -> Comparison:
    """Run the loads against the servers in turn; progress is written to standard error."""
    found = Comparison(servers, loads)
    neighbors = Neighbors()
    for number in range(1, runs + 1):
        for server in servers:
            with running(SERVERS[server]) as broker:
                filled = False
                for name in loads:
                    _tell(f"run {number} of {runs}, {server}: {name}")
                    load = LOADS[name]
                    if load.needs_data and not filled:
                        broker.fill(size)
                        filled = True
                    if size.warm and not load.cold:
                        load.run(broker, size)
                    found.add(server, name, load.run(broker, size))
    found.about = _about(runs, size, neighbors.share())
    return found


def _tell(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def _about(runs: int, size: Size, others: float) -> dict[str, Any]:
    import confluent_kafka

    server = next(one for one in SETS[RELEASE] if ":kafka_" in one)
    commit = _said("git", "rev-parse", "--short", "HEAD")
    changed = "+" if _said("git", "status", "--porcelain", "--untracked-files=no") else ""
    return {
        "date": time.strftime("%Y-%m-%d"),
        "runs": runs,
        "short": size is SHORT,
        "cores": os.cpu_count(),
        "others": round(others, 3),
        "quiet": others < QUIET,
        "sluice": f"{commit}{changed}" if commit else "no commit",
        "kafka": server.rpartition(":")[2],
        "java": _java_version(),
        "librdkafka": confluent_kafka.libversion()[0],
        "python": platform.python_version(),
        "system": platform.platform(),
    }


def _java_version() -> str:
    found = re.search(r'version "(.+?)"', _said("java", "-version"))
    return found[1] if found else "unknown"


def _said(*command: str) -> str:
    """What a program prints, "" if it is not there or fails."""
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True, timeout=60
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()


def table(found: Comparison) -> str:
    """The table in Markdown, and a line that says when, on what and with which versions it was measured."""
    others = [server for server in found.servers if server != OURS]
    head = ["what", "unit", SERVERS[OURS].title]
    for other in others:
        head += [SERVERS[other].title, "ratio"]
    rows = [[*head, "target"], ["---"] * (len(head) + 1)]
    for load in found.loads:
        for line in LOADS[load].lines:
            name = f"{load}.{line.key}"
            cells = [
                line.what,
                f"{line.unit} {'↑' if line.more else '↓'}",
                _spread(found.samples[OURS][name]),
            ]
            for other in others:
                ratio = _spread(found.ratios(name, other)) if line.compared else ""
                cells += [_spread(found.samples[other][name]), ratio]
            rows.append([*cells, found.verdict(name, line)[0]])
    return "\n".join([_origin(found.about), "", *(f"| {' | '.join(row)} |" for row in rows)]) + "\n"


def _spread(samples: list[float]) -> str:
    """The median, and the least and the most if there are several."""
    median = _digits(statistics.median(samples))
    return median if len(samples) == 1 else f"{median} ({_digits(min(samples))}–{_digits(max(samples))})"


def _digits(number: float) -> str:
    return f"{number:.0f}" if abs(number) >= 100 else f"{number:.3g}"


def _origin(about: dict[str, Any]) -> str:
    machine = "a quiet machine" if about["quiet"] else "a machine that others loaded"
    short = " **Short turns of a cold JVM: no figures to go by.**" if about["short"] else ""
    return (
        f"Measured {about['date']}, {about['runs']} run{'s in turn' * (about['runs'] > 1)}, on {machine} "
        f"({about['cores']} cores, of which other processes used {about['others']:.0%}; {about['system']}): "
        f"Sluice {about['sluice']} on Python {about['python']}, Kafka {about['kafka']} on Java {about['java']}, "
        f"librdkafka {about['librdkafka']}.{short}"
    )


def insert(file: Path, text: str, marks: tuple[str, str] = MARKS) -> None:
    """Write the table between the marks of a file. Raises ValueError if it has none."""
    before, begin, rest = file.read_text().partition(marks[0])
    _, end, after = rest.partition(marks[1])
    if not begin or not end:
        raise ValueError(
            f"{file} has no lines {marks[0].strip()!r} and {marks[1]!r}: write them where the table belongs."
        )
    file.write_text(f"{before}{begin}{text}{end}{after}")


def main(arguments: Sequence[str]) -> int:
    """Compare, print the table, write what is asked for; exit code 1 if a whole run misses a target."""
    wanted = _arguments(arguments)
    if not is_fetched(RELEASE):
        print(f"A JDK and Kafka are needed: run python -m tests.peers.fetch {RELEASE}.", file=sys.stderr)
        return 2
    if wanted.markdown:
        insert(wanted.markdown, "")
    size = SHORT if wanted.short else WHOLE
    loads = [name for name in LOADS if name in wanted.loads]
    servers = [OURS, *(server for server in SERVERS if server in wanted.against)]
    found = compare(servers, loads, wanted.runs or (1 if wanted.short else 3), size)
    text = table(found)
    print(text)
    if wanted.json:
        wanted.json.write_text(json.dumps({"about": found.about, "samples": found.samples}, indent=1) + "\n")
    if wanted.markdown:
        insert(wanted.markdown, text)
    lines = [(f"{name}.{line.key}", line) for name in loads for line in LOADS[name].lines]
    missed = any(found.verdict(name, line)[1] for name, line in lines)
    return 1 if missed and not wanted.short else 0


def _arguments(arguments: Sequence[str]) -> argparse.Namespace:
    others = [server for server in SERVERS if server != OURS]
    parser = argparse.ArgumentParser(
        prog="python -m bench compare",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--runs", type=int, help="how often each server is measured: 3, with --short 1")
    parser.add_argument(
        "--short", action="store_true", help="little data: whether it works, not what it costs"
    )
    parser.add_argument("--loads", nargs="+", choices=list(LOADS), default=list(LOADS), metavar="LOAD")
    parser.add_argument("--against", nargs="+", choices=others, default=others, metavar="SERVER")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all samples as JSON")
    parser.add_argument(
        "--markdown", type=Path, metavar="FILE", help="write the table between a file's marks"
    )
    return parser.parse_args(arguments)
