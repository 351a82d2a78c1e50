"""Every parser and every listener gets valid input that is changed at random: only typed errors, within 50 ms.

Without options each is fuzzed for a minute. The short form is tests/fuzz/test_fuzz.py.
"""

from __future__ import annotations

import argparse
import logging
import random
import time

from tests.fuzz.listeners import fuzz_listener, listeners
from tests.fuzz.parsers import parsers
from tests.fuzz.run import Report, fuzz

_ROUND = 4000


def main() -> int:
    """The command; exit code 1 if anything was found."""
    names = [*(parser.name for parser in parsers()), *listeners(0)]
    arguments = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    arguments.add_argument("--target", choices=names, help="this one alone")
    arguments.add_argument("--seconds", type=float, default=60.0, help="for each")
    arguments.add_argument("--seed", type=int, default=random.randrange(2**32))
    chosen = arguments.parse_args()
    # Damaged files are complained about, as they should be.
    logging.getLogger().addHandler(logging.NullHandler())
    print(f"seed {chosen.seed}")
    found = 0
    for parser in parsers():
        if chosen.target in (None, parser.name):
            found += _tell(fuzz(parser, chosen.seed, seconds=chosen.seconds))
    for name in listeners(0):
        if chosen.target in (None, name):
            found += _tell(_listener(name, chosen.seed, chosen.seconds))
    return 1 if found else 0


def _listener(name: str, seed: int, seconds: float) -> Report:
    """A listener for so long, with a new broker now and then."""
    until, total = time.monotonic() + seconds, Report(name)
    while time.monotonic() < until and total.finding is None:
        report = fuzz_listener(name, seed, inputs=_ROUND)
        total.inputs += report.inputs
        total.refused += report.refused
        total.slowest = max(total.slowest, report.slowest)
        total.finding = report.finding
        seed += 1
    return total


def _tell(report: Report) -> int:
    print(report, flush=True)
    if report.finding is not None:
        print("kept as", report.finding.keep(), flush=True)
    return report.finding is not None
