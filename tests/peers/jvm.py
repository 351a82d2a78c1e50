"""A Java program of `fetch.SETS` that runs beside a test: Connect, MirrorMaker, a Streams application."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.peers.kafka import java

# A JVM on a machine that others share may take a minute to start.
WAIT_SECONDS = 120.0


def properties(file: Path, settings: Mapping[str, object]) -> str:
    """Write a file of properties; return its path as an argument."""
    file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return str(file)


class JavaProcess:
    """A main class with its arguments, in a JVM of its own that cannot survive the process that started it.

    It may be killed and started again. `log` is a file with all that it printed, over all starts.
    """

    def __init__(self, log: Path, main: str, *arguments: str) -> None:
        self.log = log
        self._command = java("kafka-4.1", "Child", main, *arguments, heap="256m")
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> JavaProcess:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> JavaProcess:
        """Start the JVM and do not wait for what it does."""
        assert self._process is None
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                cwd=self.log.parent,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        return self

    def kill(self) -> None:
        """SIGKILL: it cannot commit, flush or leave its group."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process = None

    def pause(self) -> None:
        """SIGSTOP: it stands still, as on a machine that is suspended; a kill ends it all the same."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT: it continues."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def wait(self, what: str, condition: Callable[[], object]) -> None:
        """Wait until `condition` is true; fails with the log if the program ends or takes over two minutes."""
        assert self._process is not None
        deadline = time.monotonic() + WAIT_SECONDS
        while not condition():
            ended = self._process.poll() is not None
            if ended or time.monotonic() > deadline:
                why = "the program ended" if ended else f"not within {WAIT_SECONDS:.0f} s"
                raise AssertionError(f"{what}: {why}:\n{self.log.read_text(errors='replace')[-12_000:]}")
            time.sleep(0.1)
