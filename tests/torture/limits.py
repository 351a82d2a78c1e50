"""Hostile and slow clients at full size: what each attack adds to the broker's memory, against its bound.

The short form is tests/limits/test_limits.py; tests/limits/attacks.py has the cases.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from tests.limits.attacks import CASES
from tests.limits.measure import measure


def main() -> int:
    """The command; exit code 1 if a bound was passed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--case", default="", help="only cases whose name begins so")
    arguments = parser.parse_args()
    held = True
    for case in CASES:
        if case.name.startswith(arguments.case):
            with tempfile.TemporaryDirectory() as directory:
                found = measure(case, Path(directory), arguments.scale)
            print(found, "" if found.held else "  OVER", flush=True)
            held = held and found.held
    return 0 if held else 1
