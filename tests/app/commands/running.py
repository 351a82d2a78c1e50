"""Running a command in this process, as a person would, and looking at what it printed."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psutil
from click.testing import CliRunner

from app.__main__ import main


@dataclass
class Ran:
    """What a command printed."""

    out: str
    raw: bytes
    err: str
    code: int

    @property
    def json(self) -> Any:
        """Its output as one JSON document."""
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        """The lines of its output."""
        return self.out.splitlines()

    @property
    def rows(self) -> list[list[str]]:
        """A table's cells, without the heading."""
        return [line.split() for line in self.lines[1:]]


def run(*args: str, url: str, given: bytes | str | None = None, code: int | None = 0) -> Ran:
    """Run a command in this process. `code` is the exit code that it must have; None takes any."""
    result = CliRunner().invoke(main, list(args), input=given, env={"SLUICE_URL": url}, prog_name="sluice")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    ran = Ran(result.stdout, result.stdout_bytes, result.stderr, result.exit_code)
    assert "Traceback" not in ran.err
    if code is not None:
        assert ran.code == code, f"exit code {ran.code}\n{ran.out}\n{ran.err}"
    return ran


Sluice = Callable[..., Ran]
Spawn = Callable[..., "subprocess.Popen[bytes]"]


def lines_of(process: subprocess.Popen[bytes], count: int) -> list[bytes]:
    """The next lines that a process prints."""
    assert process.stdout is not None
    return [process.stdout.readline().rstrip(b"\n") for _ in range(count)]


def until_connected(process: subprocess.Popen[bytes]) -> None:
    """Wait until a process has an established connection, and a moment more, in which it sends its request."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if any(c.status == "ESTABLISHED" for c in psutil.Process(process.pid).net_connections()):
            time.sleep(0.5)
            return
        time.sleep(0.02)
    raise AssertionError("it never connected")
