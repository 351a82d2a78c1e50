"""Feeding a parser or a listener: what must hold for every input, and what is kept of one that breaks it."""

from __future__ import annotations

import hashlib
import random
import resource
import time
import traceback
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz.mutation import mutate
from tests.fuzz.parsers import Parser

CORPUS = Path(__file__).parent / "corpus"
# Processor time that one input may take: the loop of the broker stands still for so long.
MAX_SECONDS = 0.05
# Resident memory that a whole run may add: nothing is kept, and no input of 20 KB opens into more than 1 MiB here.
MAX_GROWTH = 96 * 1024 * 1024


@dataclass(frozen=True)
class Finding:
    """An input that a parser does not bear."""

    target: str
    data: bytes
    why: str

    def keep(self) -> Path:
        """Write the input into the corpus, where the tests try it again from now on."""
        folder = CORPUS / self.target
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / hashlib.sha256(self.data).hexdigest()[:12]
        path.write_bytes(self.data)
        return path


@dataclass
class Report:
    """What came of a run."""

    target: str
    inputs: int = 0
    refused: int = 0
    slowest: float = 0.0
    growth: int = 0
    finding: Finding | None = None

    def __str__(self) -> str:
        return (
            f"{self.target:14} {self.inputs:>9,} inputs, {self.refused:>9,} refused, "
            f"slowest {self.slowest * 1000:5.1f} ms, "
            f"memory +{self.growth / 2**20:.0f} MiB" + (f": {self.finding.why}" if self.finding else "")
        )


def kept(target: str) -> list[bytes]:
    """What is in the corpus for a target: inputs that once did harm."""
    folder = CORPUS / target
    return [path.read_bytes() for path in sorted(folder.iterdir())] if folder.is_dir() else []


def try_one(parser: Parser, data: bytes) -> tuple[bool, float, str]:
    """Whether it was refused, the processor time, and what is wrong ("" if nothing is)."""
    start = time.process_time()
    try:
        parser.parse(data)
    except parser.errors:
        return True, time.process_time() - start, ""
    except Exception:
        return False, time.process_time() - start, traceback.format_exc()
    return False, time.process_time() - start, ""


def fuzz(parser: Parser, seed: int, *, inputs: int | None = None, seconds: float | None = None) -> Report:
    """Feed a parser with mutations of its samples and of the corpus, by number or by time."""
    chance = random.Random(f"{parser.name} {seed}")
    samples = parser.samples() + kept(parser.name)
    report, before = Report(parser.name), _peak()
    until = time.monotonic() + seconds if seconds is not None else None
    for data in samples:
        _, _, why = try_one(parser, data)
        if why:
            report.finding = Finding(parser.name, data, why)
            return report
    while report.inputs < inputs if inputs is not None else time.monotonic() < (until or 0):
        data = mutate(chance.choice(samples), samples, chance)
        refused, took, why = try_one(parser, data)
        report.inputs += 1
        report.refused += refused
        if took > MAX_SECONDS and not why:
            # Once more: a collection of garbage is not the input's fault.
            took = min(took, try_one(parser, data)[1])
            why = f"it took {took * 1000:.0f} ms" if took > MAX_SECONDS * parser.weight else ""
        report.slowest = max(report.slowest, took)
        if why:
            report.finding = Finding(parser.name, data, why)
            break
    report.growth = _peak() - before
    if report.growth > MAX_GROWTH and report.finding is None:
        report.finding = Finding(parser.name, b"", f"memory grew by {report.growth >> 20} MiB")
    return report


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
