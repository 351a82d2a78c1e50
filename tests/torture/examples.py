"""Tests that generate their cases, with many more: torn logs, lost files, deaths inside the log, the log machine.

Without arguments all of them run, for some hours. Arguments go to pytest: name one file, or add -k or -x.
"""

from __future__ import annotations

import os
import subprocess
import sys

from tests.broker_process import ROOT

FILES = (
    "tests/core/log/test_recovery.py",
    "tests/core/log/test_log_machine.py",
    "tests/core/log/test_cleaner.py",
    "tests/crash/test_lost_files.py",
    "tests/crash/test_log_deaths.py",
)


def main() -> int:
    """Run pytest without a time limit; return its exit code."""
    arguments = sys.argv[1:]
    files = () if any(argument.startswith("tests/") for argument in arguments) else FILES
    command = [sys.executable, "-m", "pytest", "--timeout=0", *files, *arguments]
    return subprocess.run(command, cwd=ROOT, env={**os.environ, "SLUICE_LONG_TESTS": "1"}).returncode
