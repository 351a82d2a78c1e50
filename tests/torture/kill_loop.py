"""A broker under clients of all protocols is killed with SIGKILL, paused or restarted: nothing acknowledged is lost.

The short form is tests/crash/test_kill_loop.py; tests/crash/kill_loop.py says what is compared.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import tempfile
from pathlib import Path

from tests.crash.kill_loop import BETWEEN, FAULTS, KillLoop


def main() -> None:
    """The loop by hand, with as many rounds as you like."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    parser.add_argument("--fault", action="append", choices=FAULTS, help="repeat it; only kills without it")
    parser.add_argument("--every", type=float, help="seconds between two faults, instead of a random time")
    parser.add_argument("--keep", type=Path, help="keep the data and the broker's log in this directory")
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}")
    between = (arguments.every, arguments.every) if arguments.every else BETWEEN
    with contextlib.ExitStack() as stack:
        directory = arguments.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        directory.mkdir(parents=True, exist_ok=True)
        loop = KillLoop(directory, arguments.seed, arguments.fault or ("kill",), between)
        print(loop.run(arguments.rounds))
