"""The broker, then a consumer, is stopped (SIGSTOP) for longer than sessions last: one rebalance, nothing lost.

The short form is tests/crash/test_pauses.py.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from tests.crash.pauses import run


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--rounds", type=int, default=10)
    arguments = parser.parse_args()
    for _ in range(arguments.rounds):
        with tempfile.TemporaryDirectory() as directory:
            print(run(Path(directory), arguments.seconds), flush=True)
