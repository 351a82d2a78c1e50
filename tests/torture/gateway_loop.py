"""One of three gateways over a cluster is killed or stopped, again and again: nothing is lost or doubled.

The short form is tests/crash/test_gateway_loop.py; tests/crash/gateway_loop.py says what is checked.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from pathlib import Path

from tests.crash.gateway_loop import gateway_loop


def main() -> None:
    """The loop by hand, with as many rounds as you like."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    parser.add_argument(
        "--keep", type=Path, help="keep the data and the logs of the processes in this directory"
    )
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}")
    if arguments.keep:
        arguments.keep.mkdir(parents=True, exist_ok=True)
        print(gateway_loop(arguments.keep, arguments.rounds, arguments.seed))
        return
    with tempfile.TemporaryDirectory() as directory:
        print(gateway_loop(Path(directory), arguments.rounds, arguments.seed))
