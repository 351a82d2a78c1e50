"""The parent of the workers: it keeps the listening sockets open, and starts, watches and replaces the workers.

It has no event loop and handles no request, so there is little in it that can fail. Each worker has a listening
socket of its own per HTTP listener (SO_REUSEPORT), and the system spreads connections over them. While a worker is
down, the parent tells another one to accept its connections as well. So no client waits for a restart.

    worker ends      restarted at once; with a pause that doubles up to 10 s if it did not run for 10 s
    SIGTERM, SIGINT, SIGHUP    all workers drain, worker 0 last; a second signal ends them at once
    SIGUSR1          passed on: workers load their certificates again
    SIGUSR2          a rolling restart: the settings are checked, then one worker after another drains and is replaced
    parent is killed           workers see the end of the control socket, drain and end

This module imports the standard library alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import select
import signal
import socket
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from app.workers.spec import ADOPT, CHECK, READY, RELEASE, VARIABLE, Spec

_STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
# A worker that has run for this long has not failed at its start.
_STABLE_SECONDS = 10.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 10.0
# Forwarded requests that wait for a worker are refused if its restart is further away than this.
_HOLD_SECONDS = 2.0
_BACKLOG = 2048
# In the data directory. Those of topics end with a number after a hyphen.
DIRECTORY = ".workers"
_MAX_LINE = 65_536


class Setting(NamedTuple):
    """What the first process passes to the parent: see `app.workers.start`."""

    command: list[str]
    workers: int
    home: str
    sockets: str
    http: list[list[int]]
    log_format: str


class Worker:
    """One worker as the parent sees it."""

    def __init__(self, index: int, unix: socket.socket) -> None:
        self.index = index
        self.unix = unix
        self.process: subprocess.Popen[bytes] | None = None
        self.control: socket.socket | None = None
        self.ready = False
        self.started = 0.0
        # When it is started again, if it has ended; how often it has ended too soon.
        self.due = 0.0
        self.failures = 0
        self.leaving = False
        # The worker that accepts its connections meanwhile.
        self.adopter: Worker | None = None
        self.received = b""

    @property
    def running(self) -> bool:
        """Whether its process runs."""
        return self.process is not None

    def tell(self, line: str) -> None:
        """Send a line; a worker that ends does not read it."""
        if self.control is not None:
            with contextlib.suppress(OSError):
                self.control.sendall(line.encode() + b"\n")


class Parent:
    """Runs the workers until it is told to stop. `run` returns the exit code."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._secret = secrets.token_hex(32)
        directory = Path(setting.sockets)
        self._paths = [str(directory / f"worker-{index}.sock") for index in range(setting.workers)]
        self._workers = [Worker(index, _unix_socket(path)) for index, path in enumerate(self._paths)]
        # Of worker 0, once it has told them.
        self._ports: list[int] = []
        self._kafka = ""
        self._announced = False
        self._signals: list[int] = []
        self._stopping = False
        self._code = 0
        # Of a rolling restart: the process that checks the settings, and the workers that are still to be replaced.
        self._check: subprocess.Popen[bytes] | None = None
        self._rolling: list[Worker] = []
        self._replacing: Worker | None = None

    def run(self) -> int:
        """Run until all workers have ended."""
        woken, wake = os.pipe()
        for end in (woken, wake):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        for number in (*_STOPS, signal.SIGCHLD, signal.SIGUSR1, signal.SIGUSR2):
            # nohup ignores SIGHUP; then it stays ignored.
            if number == signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN:
                continue
            signal.signal(number, self._note)
        # The others need the address of the Kafka listener, which worker 0 tells when it is ready.
        self._start(self._workers[0])
        try:
            while not (self._stopping and not any(worker.running for worker in self._workers)):
                self._wait(woken)
                self._reap()
                while self._signals:
                    self._handle(self._signals.pop(0))
                self._proceed()
        finally:
            for path in self._paths:
                Path(path).unlink(missing_ok=True)
            Path(self._setting.home, "listeners.json").unlink(missing_ok=True)
        return self._code

    # --- waiting -------------------------------------------------------------------------------------------

    def _note(self, number: int, frame: object) -> None:
        if number != signal.SIGCHLD:
            self._signals.append(number)

    def _wait(self, woken: int) -> None:
        """Return when a signal came, a worker has written, or a worker is to be started."""
        dues = [worker.due for worker in self._workers if not worker.running and worker.due]
        timeout = max(0.0, min(dues) - time.monotonic()) if dues and not self._stopping else None
        if timeout is not None and timeout > _HOLD_SECONDS:
            timeout = _HOLD_SECONDS / 4
        controls = {w.control.fileno(): w for w in self._workers if w.control is not None}
        readable, _, _ = select.select([woken, *controls], [], [], timeout)
        for one in readable:
            if one == woken:
                with contextlib.suppress(BlockingIOError):
                    os.read(woken, 4096)
            else:
                self._read(controls[one])

    def _read(self, worker: Worker) -> None:
        assert worker.control is not None
        try:
            data = worker.control.recv(_MAX_LINE)
        except OSError:
            data = b""
        if not data or len(worker.received) > _MAX_LINE:
            worker.control.close()
            worker.control = None
            return
        *lines, worker.received = (worker.received + data).split(b"\n")
        for line in lines:
            word, _, rest = line.decode().partition(" ")
            if word == READY:
                self._note_ready(worker, json.loads(rest))

    def _note_ready(self, worker: Worker, told: dict[str, object]) -> None:
        worker.ready = True
        self._release(worker)
        if worker.index == 0:
            ports, self._kafka = told["ports"], str(told["kafka"])
            assert isinstance(ports, list)
            self._ports = ports
            self._announced = True
            for other in self._workers[1:]:
                if not other.running and not other.due:
                    self._start(other)
        if worker is self._replacing:
            self._replacing = None
            if not self._rolling:
                self._log("info", "all workers are replaced")

    # --- processes -----------------------------------------------------------------------------------------

    def _start(self, worker: Worker) -> None:
        ours, theirs = socket.socketpair()
        os.set_inheritable(theirs.fileno(), True)
        spec = Spec(
            worker.index, self._setting.workers, self._setting.home, self._secret, self._setting.http,
            worker.unix.fileno(), self._paths, theirs.fileno(), self._ports, self._kafka,
            announce=worker.index == 0 and not self._announced,
        )  # fmt: skip
        sockets = [fd for listener in self._setting.http for fd in listener]
        worker.process = self._spawn(spec, [theirs.fileno(), worker.unix.fileno(), *sockets])
        theirs.close()
        worker.control = ours
        worker.received = b""
        worker.ready = worker.leaving = False
        worker.started = time.monotonic()
        worker.due = 0.0

    def _spawn(self, spec: Spec, descriptors: list[int]) -> subprocess.Popen[bytes]:
        reader, writer = os.pipe()
        try:
            process = subprocess.Popen(
                self._setting.command,
                stdin=subprocess.DEVNULL,
                pass_fds=[reader, *descriptors],
                env={**os.environ, VARIABLE: str(reader)},
                # Ctrl-C in a terminal is for the parent, which stops the workers in order.
                process_group=0,
            )
            # A pipe takes 64 KiB without a reader; this is less than 4.
            os.write(writer, spec.encoded())
        finally:
            os.close(reader)
            os.close(writer)
        return process

    def _reap(self) -> None:
        for worker in self._workers:
            if worker.process is not None and (code := worker.process.poll()) is not None:
                worker.process = None
                if worker.control is not None:
                    worker.control.close()
                    worker.control = None
                self._note_end(worker, code)
        if self._check is not None and (code := self._check.poll()) is not None:
            self._check = None
            self._begin_rolling(code)

    def _note_end(self, worker: Worker, code: int) -> None:
        was_ready, worker.ready = worker.ready, False
        for other in self._workers:
            # What it had adopted is for another one.
            if other.adopter is worker:
                other.adopter = None
        if self._stopping:
            return
        now = time.monotonic()
        if worker.index == 0 and not self._announced:
            # The first start has failed, and the worker has said why.
            self._code = code if code > 0 else 1
            self._stop(signal.SIGTERM)
            return
        if worker.leaving:
            worker.due = now
            return
        if was_ready and now - worker.started >= _STABLE_SECONDS:
            worker.failures = 0
        pause = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2**worker.failures) if worker.failures else 0.0
        worker.failures += 1
        worker.due = now + pause
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        self._log("error", f"worker {worker.index} has ended ({how}); it is started again in {pause:.1f} s")
        if worker is self._replacing or self._rolling:
            self._rolling.clear()
            self._replacing = None
            self._log("error", "the rolling restart has stopped; the other workers were not replaced")

    def _proceed(self) -> None:
        """Start what is due, let workers that are up accept for those that are not, continue a rolling restart."""
        if self._stopping:
            if not any(worker.running for worker in self._workers[1:]):
                self._end(self._workers[0], signal.SIGTERM)
            return
        now = time.monotonic()
        for worker in self._workers:
            if not worker.running and worker.due and worker.due <= now:
                self._start(worker)
            elif not worker.running and worker.due - now > _HOLD_SECONDS:
                _refuse_waiting(worker.unix)
        if self._announced:
            for worker in self._workers:
                if not worker.ready or worker.leaving:
                    self._adopt(worker)
        if self._replacing is None and self._rolling and all(worker.ready for worker in self._workers):
            self._replacing = worker = self._rolling.pop(0)
            worker.leaving = True
            self._adopt(worker)
            self._end(worker, signal.SIGTERM)

    def _adopt(self, worker: Worker) -> None:
        if worker.adopter is not None:
            return
        other = next((w for w in self._workers if w is not worker and w.ready and not w.leaving), None)
        if other is not None:
            worker.adopter = other
            other.tell(f"{ADOPT} {worker.index}")

    def _release(self, worker: Worker) -> None:
        if worker.adopter is not None:
            worker.adopter.tell(f"{RELEASE} {worker.index}")
            worker.adopter = None

    # --- signals -------------------------------------------------------------------------------------------

    def _handle(self, number: int) -> None:
        if number == signal.SIGUSR1:
            for worker in self._workers:
                if worker.ready:
                    self._end(worker, signal.SIGUSR1)
        elif number == signal.SIGUSR2:
            self._check_settings()
        elif self._stopping:
            for worker in self._workers:
                self._end(worker, signal.SIGKILL)
            self._code = 128 + number
        else:
            self._say("Stopping.")
            self._stop(number)

    def _stop(self, number: int) -> None:
        self._stopping = True
        self._rolling.clear()
        # Worker 0 answers what the others forward, so it is the last one.
        for worker in self._workers[1:]:
            self._end(worker, signal.SIGTERM)

    def _check_settings(self) -> None:
        if self._stopping or self._check is not None or self._rolling or self._replacing is not None:
            self._log("warning", "a rolling restart or a stop is under way; the signal is ignored")
            return
        spec = Spec(
            CHECK,
            self._setting.workers,
            self._setting.home,
            "",
            self._setting.http,
            -1,
            [],
            -1,
            [],
            "",
            False,
        )
        self._check = self._spawn(spec, [])

    def _begin_rolling(self, code: int) -> None:
        if self._stopping:
            return
        if code != 0:
            self._log("error", "the settings cannot be used; no worker was replaced")
            return
        self._log("info", "replacing the workers, one after another")
        self._rolling = list(self._workers)

    @staticmethod
    def _end(worker: Worker, number: int) -> None:
        if worker.process is not None:
            with contextlib.suppress(ProcessLookupError):
                worker.process.send_signal(number)

    # --- words ---------------------------------------------------------------------------------------------

    def _say(self, text: str) -> None:
        with contextlib.suppress(OSError):
            print(text, flush=True)

    def _log(self, level: str, message: str) -> None:
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        if self._setting.log_format == "json":
            line = json.dumps({"time": now, "level": level, "logger": "sluice.workers", "message": message})
        else:
            line = f"{now} {level.upper()} sluice.workers {message}"
        with contextlib.suppress(OSError):
            print(line, file=sys.stderr, flush=True)


def _unix_socket(path: str) -> socket.socket:
    """Return a listening UNIX socket that only this user can connect to."""
    Path(path).unlink(missing_ok=True)
    one = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    one.setblocking(False)
    before = os.umask(0o177)
    try:
        one.bind(path)
    finally:
        os.umask(before)
    one.listen(_BACKLOG)
    return one


def _refuse_waiting(listening: socket.socket) -> None:
    """Close the connections that wait for a worker; the worker that has sent them answers 503."""
    with contextlib.suppress(OSError):
        while True:
            listening.accept()[0].close()


def main() -> int:
    """Run the parent with the setting of the first argument; return its exit code."""
    return Parent(Setting(**json.loads(sys.argv[1]))).run()


if __name__ == "__main__":
    sys.exit(main())
