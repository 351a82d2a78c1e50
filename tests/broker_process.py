"""A broker as its users run it: a child process, started by the command line, on ports that it chose."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).resolve().parent.parent
# A clean start takes under a second; a machine shared with others may take its time.
START_SECONDS = 30.0
STOP_SECONDS = 20.0
_URL = re.compile(r"^(\w+)://(.+):(\d+)(\?.*)?$")


class BrokerProcess:
    """One broker in a child process over one data directory; it may be started, killed and started again.

    The ports are chosen at the first start and kept for the next ones, so that clients find it again. `schemes`
    are listeners beside http and kafka, with their options after a question mark. `log` is a file with all that
    the process printed, over all starts.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        options: Sequence[str] = (),
        environment: dict[str, str] | None = None,
        python: str = sys.executable,
        schemes: Sequence[str] = (),
    ) -> None:
        self.data_dir = data_dir
        self.log = data_dir.with_name(data_dir.name + ".log")
        self.options = list(options)
        self.environment = environment or {}
        self.python = python
        self.ports = {"http": 0, "kafka": 0} | dict.fromkeys(schemes, 0)
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def http(self) -> str:
        """The base URL of the HTTP listener."""
        return f"http://127.0.0.1:{self.ports['http']}"

    @property
    def kafka(self) -> str:
        """`host:port` of the Kafka listener: what clients call a bootstrap server."""
        return f"127.0.0.1:{self.ports['kafka']}"

    @property
    def kafka_address(self) -> tuple[str, int]:
        """The same for a socket."""
        return ("127.0.0.1", self.ports["kafka"])

    @property
    def line_address(self) -> tuple[str, int]:
        """The listener of the line protocol for a socket, if the broker has one."""
        return ("127.0.0.1", self.ports["text"])

    def kafka07_address(self, magic: int) -> tuple[str, int]:
        """The Kafka 0.7 listener of one message format for a socket, if the broker has one."""
        return ("127.0.0.1", self.ports[f"kafka07?magic={magic}"])

    @property
    def pid(self) -> int:
        """The process id of the running broker."""
        assert self.process is not None, "the broker is not running"
        return self.process.pid

    @property
    def running(self) -> bool:
        """Whether the process is there."""
        return self.process is not None and self.process.poll() is None

    def spawn(self) -> None:
        """Start the process and do not wait for it."""
        assert not self.running
        listeners = self.data_dir / "listeners.json"
        listeners.unlink(missing_ok=True)
        command = [self.python, "-m", "app", "serve", "--data-dir", str(self.data_dir), *self._own_options()]
        for name, port in self.ports.items():
            scheme, mark, options = name.partition("?")
            command += ["--listener", f"{scheme}://127.0.0.1:{port}{mark}{options}"]
        environment = {**os.environ, "PYTHONUNBUFFERED": "1", **self.environment}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command + self.options,
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def _own_options(self) -> list[str]:
        """What a kind of process adds to its command."""
        return []

    def _ports(self, listeners: Any) -> dict[str, int]:
        """The port of each scheme. Raises ValueError without one that the process must have."""
        return ports_of(listeners, [name for name in ("kafka", "http") if name in self.ports])

    def start(self) -> Self:
        """Start the process and wait until it says that it is ready."""
        self.spawn()
        self.wait_ready()
        return self

    def wait_ready(self) -> None:
        """Wait until the ports are known and /readyz answers 200; fails with the log otherwise."""
        deadline = time.monotonic() + START_SECONDS
        listeners = self.data_dir / "listeners.json"
        while time.monotonic() < deadline:
            if not self.running:
                raise AssertionError(f"the broker stopped at its start:\n{self.read_log()}")
            try:
                self.ports = self._ports(json.loads(listeners.read_text()))
                with urllib.request.urlopen(f"{self.http}/readyz", timeout=5) as answer:
                    if answer.status == 200:
                        return
            except (OSError, ValueError, urllib.error.URLError):
                pass
            time.sleep(0.01)
        raise AssertionError(f"the broker is not ready after {START_SECONDS} s:\n{self.read_log()}")

    def kill(self) -> None:
        """SIGKILL: as a power cut, but for the disk."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def pause(self) -> None:
        """SIGSTOP: it stands still, as on a machine that is suspended."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT: it continues."""
        os.kill(self.pid, signal.SIGCONT)

    def stop(self) -> int:
        """SIGTERM, as a service manager does; answers the exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"the broker did not stop in {STOP_SECONDS} s:\n{self.read_log()}") from None
        finally:
            self.process = None

    def read_log(self) -> str:
        """All that the broker printed so far."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""


def ports_of(listeners: Any, needed: Sequence[str]) -> dict[str, int]:
    """The port of each scheme, as listeners.json names them: a list of URLs, or URLs by name."""
    found = {}
    for url in listeners.values() if isinstance(listeners, dict) else listeners:
        if match := _URL.match(url):
            found[match[1] + (match[4] or "")] = int(match[3])
    if not set(needed) <= found.keys():
        raise ValueError(f"listeners.json does not name {' and '.join(needed)}: {listeners}")
    return found
