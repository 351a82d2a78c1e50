"""Each system call of a real broker fails in turn: killed there, disk full from there on, or EIO.

The short form is tests/crash/test_disk_faults.py; tests/crash/disk_faults.py says what is compared.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
from pathlib import Path

from tests.crash.disk_faults import KINDS, count, run


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kind", choices=KINDS, action="append")
    parser.add_argument("--points", type=int, default=200)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}")
    if shutil.which("strace") is None:
        sys.exit("strace is not installed.")
    with tempfile.TemporaryDirectory() as directory:
        counted = count(Path(directory))
        for kind in arguments.kind or KINDS:
            print(run(Path(directory), kind, arguments.points, arguments.seed, counted), flush=True)
