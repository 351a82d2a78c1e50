"""A leader or its follower is killed, the other is promoted: both logs stay equal, byte for byte.

The short form is tests/crash/test_promote_loop.py; tests/crash/promote_loop.py says what is compared.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from pathlib import Path

from tests.crash.promote_loop import promote_loop


def main() -> None:
    """The loop by hand, with as many rounds as you like."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    parser.add_argument("--keep", type=Path, help="keep the data and the brokers' logs in this directory")
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}")
    if arguments.keep:
        arguments.keep.mkdir(parents=True, exist_ok=True)
        print(promote_loop(arguments.keep, arguments.rounds, arguments.seed))
        return
    with tempfile.TemporaryDirectory() as directory:
        print(promote_loop(Path(directory), arguments.rounds, arguments.seed))
