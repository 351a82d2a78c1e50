"""A broker under load, while clients, topics and groups come and go: memory, descriptors, threads and disk stay flat.

The short form is tests/limits/test_soak.py; tests/limits/soak.py says what is measured.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from tests.limits.churn import PAUSE_SECONDS
from tests.limits.soak import ALLOWED, growth, run


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=480.0)
    parser.add_argument("--rate", type=int, default=1000, help="records a second into the steady topic")
    parser.add_argument(
        "--pause", type=float, default=PAUSE_SECONDS, help="seconds between two of each kind that come and go"
    )
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        soak, samples = run(
            Path(directory),
            arguments.minutes * 60,
            arguments.rate,
            lambda text: print(text, flush=True),
            arguments.pause,
        )
    print(f"{arguments.minutes:g} minutes: {dict(soak.done)}")
    grown = growth(samples)
    for name, (before, after, too_much) in grown.items():
        allowed = f"{getattr(ALLOWED, name):,} more allowed"
        print(f"{name:12} {before:14,.0f} → {after:14,.0f}   {allowed}{'   GROWS' if too_much else ''}")
    return 1 if any(too_much for _, _, too_much in grown.values()) else 0
