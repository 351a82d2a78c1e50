"""A broker is killed during commits: an answered commit is there, and no commit decreases.

The short form is tests/crash/test_commit_loop.py.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from pathlib import Path

from tests.crash.commit_loop import run


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}", flush=True)
    with tempfile.TemporaryDirectory() as directory:
        total = run(Path(directory) / "data", arguments.rounds, arguments.seed)
    print(f"{arguments.rounds} kills, {total} commits: all that was answered is there")
