"""One process: start everything, say where it listens, stop in order.

The order of a stop. The first SIGTERM, Ctrl-C or SIGHUP (the terminal was closed) drains the broker, which answers
every waiting poll; then the HTTP server finishes the requests under way and closes; then the broker flushes and
writes its clean-shutdown marker. A second signal ends the process at once, as a crash would: no acknowledged record
is lost by that. SIGUSR1 loads the certificates again.

`sluice serve --ephemeral` is a broker for tests. It keeps nothing and ends with the process that started it: its
data are in a temporary directory, in memory where the system has one, and the system chooses the ports. The first
line of stdout is a JSON object with the addresses, written when the broker answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TextIO

from app import first_user
from app.http.server import HttpServer, bind
from app.logs import access_log, configured
from app.main import create_app
from app.settings import open_listeners
from app.version import VERSION
from core.clock import Clock
from core.config import LISTENERS_FILE, Config, Endpoint
from core.errors import StartupError
from core.security.tls import ServerCertificate

log = logging.getLogger(__name__)

SIGNALS = (signal.SIGINT, signal.SIGTERM)
_NAMES = {"http": "HTTP", "kafka": "Kafka", "kafka07": "Kafka 0.7", "peer": "Brokers", "text": "Lines"}
# Objects made before the collector looks for cycles. Requests make few that last; 700 is Python's default.
_COLLECT_AFTER = 20_000
# The number of stderr.
_LAST_STANDARD = 2
# The system keeps no list of a process's former parent: a child that was adopted has another one.
_PARENT_CHECK_SECONDS = 0.25
_MEMORY = Path("/dev/shm")
# A directory in memory must have this much space; otherwise the system's temporary directory is used.
_LEAST_FREE_BYTES = 256 * 1024 * 1024


# --- what is told about where it listens ----------------------------------------------------------------------


def write_listeners(data_dir: Path, endpoints: Sequence[Endpoint]) -> None:
    """Write the URLs of all listeners to `listeners.json`, a JSON array; readers see the old file or the new.

    On a full disk the broker comes up for reading: then there is no such file, and a warning says so.
    """
    path = data_dir / LISTENERS_FILE
    temporary = path.with_suffix(".tmp")
    try:
        temporary.touch(mode=0o600)
        temporary.write_text(json.dumps([str(e) for e in endpoints], indent=2) + "\n")
        temporary.replace(path)
    except OSError as error:
        log.warning("cannot write %s: %s", path, error.strerror)
        for left in (temporary, path):
            with contextlib.suppress(OSError):
                left.unlink()


def say(text: str, stream: TextIO | None = None) -> None:
    """Print a line. A terminal that was closed, or a full disk after `>`, must not stop the broker."""
    stream = stream or sys.stdout
    try:
        print(text, file=stream, flush=True)
    except OSError:
        # What is left in the stream's buffer would fail once more at the exit.
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)


def announcement(
    config: Config, endpoints: Sequence[Endpoint], certificates: Iterable[ServerCertificate] = ()
) -> str:
    """Return the lines that a start prints: the listeners, their certificates, and a command to try."""
    lines = [f"Sluice {VERSION}, data in {config.data_dir}"]
    width = max([len("Kafka "), *(len(_name(endpoint)) for endpoint in endpoints)])
    lines += [f"  {_name(endpoint):{width}} {endpoint}" for endpoint in endpoints]
    own = [one for one in certificates if one.own]
    for one in own:
        lines.append(f"  Self-signed certificate {one.file}, SHA-256 {one.fingerprint}")
    http = next((e for e in endpoints if e.scheme == "http"), None)
    if http is not None:
        file = next((f"--cacert {one.file} " for one in own if one.name == http.tls), "")
        login = "-u NAME " if "basic" in http.authentication else ""
        lines.append(
            f"Open {http.reachable.url}/console in a browser; {http.reachable.url}/docs describes the API."
        )
        lines.append(f"Try: curl {file}{login}-d 'Hello' {http.reachable.url}/api/v1/topics/hello/records")
    lines.append("Ctrl-C stops it.")
    return "\n".join(lines)


def _name(endpoint: Endpoint) -> str:
    return _NAMES.get(endpoint.scheme, endpoint.scheme)


def addresses(endpoints: Sequence[Endpoint]) -> str:
    """Return the addresses as one line of JSON: `http_url`, `kafka_bootstrap_servers`, `listeners`, `pid`."""
    by_scheme = {endpoint.scheme: endpoint for endpoint in reversed(endpoints)}
    line: dict[str, object] = {"pid": os.getpid(), "listeners": [str(endpoint) for endpoint in endpoints]}
    if http := by_scheme.get("http"):
        line["http_url"] = http.url
    if kafka := by_scheme.get("kafka"):
        line["kafka_bootstrap_servers"] = kafka.address
    return json.dumps(line)


# --- life -----------------------------------------------------------------------------------------------------


async def serve(config: Config, parent: int | None = None) -> None:
    """Start everything, run until a signal, stop everything. Raises StartupError.

    With `parent` it is a broker for tests: it prints its addresses as JSON, and stops when that process has ended.
    """
    http = [e for e in config.listeners if e.scheme == "http"]
    sockets = bind(http)
    stopping = asyncio.Event()
    clock = Clock()
    try:
        bound = [replace(e, port=s.getsockname()[1]) for e, s in zip(http, sockets, strict=True)]
        with access_log(config) as visits, _signals(stopping):
            app = create_app(config, clock, http_endpoints=bound, visits=visits, when_loaded=gc.freeze)
            async with app.lifespan(stopping):
                await first_user.prepare(config, app.server.broker.users)
                served = app.server.certificates.by_name()
                certificates = [served[e.tls] if e.tls else None for e in http]
                server = HttpServer(
                    app.http, sockets, config, clock, app.traffic, certificates, app.server.addresses
                )
                await server.start()
                endpoints = [*bound, *app.server.endpoints]
                write_listeners(Path(config.data_dir), endpoints)
                for endpoint in open_listeners(endpoints, config.tls):
                    log.warning(
                        "the listener %s can be reached from other machines, and its clients need not log in",
                        endpoint,
                    )
                said = announcement(config, endpoints, served.values())
                say(said if parent is None else addresses(endpoints))
                first_user.announce(
                    config, endpoints, app.server.broker.users, app.setup,
                    terminal=sys.stdout is not None and sys.stdout.isatty(), say=say if parent is None else _nothing,
                )  # fmt: skip
                # Without a handler the signal would end the process.
                asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, app.server.reload)
                settle_garbage()
                async with _watched(parent, stopping.set):
                    await stopping.wait()
                app.drain()
                await server.stop()
                # The addresses are no longer true.
                (Path(config.data_dir) / LISTENERS_FILE).unlink(missing_ok=True)
    finally:
        for one in sockets:
            one.close()


def _nothing(text: str) -> None:
    """Say nothing: the output is for programs."""


@contextlib.contextmanager
def _signals(stopping: asyncio.Event) -> Iterator[None]:
    """Stop in order at the first signal, at once at the second."""
    loop = asyncio.get_running_loop()

    def handle(number: signal.Signals) -> None:
        if stopping.is_set():
            say("Stopped at once.", sys.stderr)
            os._exit(128 + number)
        say("Stopping.")
        stopping.set()

    # nohup ignores SIGHUP; then it stays ignored.
    hung_up = [signal.SIGHUP] if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN else []
    handled = [*SIGNALS, *hung_up]
    for number in handled:
        loop.add_signal_handler(number, handle, number)
    try:
        yield
    finally:
        for number in handled:
            loop.remove_signal_handler(number)


@contextlib.asynccontextmanager
async def _watched(parent: int | None, stop: Callable[[], None]) -> AsyncIterator[None]:
    """Stop when the parent process has ended, if there is one to watch."""
    watch = asyncio.create_task(watch_parent(parent, stop)) if parent is not None else None
    try:
        yield
    finally:
        if watch is not None:
            watch.cancel()


async def watch_parent(parent: int, stop: Callable[[], None]) -> None:
    """Call `stop` when the process `parent` has ended."""
    while os.getppid() == parent:
        await asyncio.sleep(_PARENT_CHECK_SECONDS)
    stop()


def settle_garbage() -> None:
    """Take the objects of the start out of the collector's sight: they last as long as the process."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_COLLECT_AFTER, 20, 50)


# --- the process ----------------------------------------------------------------------------------------------


def run(config: Config, parent: int | None = None) -> int:
    """Run until stopped; return the exit code. A start that fails is one line on stderr. `parent`: see `serve`."""
    occupy_standard_streams()
    try:
        import uvloop

        with configured(config), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serve(config, parent))
    except StartupError as error:
        print(f"sluice: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def run_ephemeral(config: Config, *, given_listeners: bool) -> int:
    """Run a broker for tests until it is stopped or its parent process ends; return the exit code."""
    parent = os.getppid()
    with ephemeral(config, given_listeners=given_listeners) as temporary:
        return run(temporary, parent)


@contextlib.contextmanager
def ephemeral(config: Config, *, given_listeners: bool) -> Iterator[Config]:
    """Give settings with a temporary data directory, ports that the system chooses, and no wait for group members.

    `given_listeners`: the user named listeners; they stay as they are. The directory is removed at the end.
    """
    directory = Path(tempfile.mkdtemp(prefix="sluice-", dir=_memory()))
    try:
        config = replace(config, data_dir=directory / "data", group_initial_rebalance_delay_ms=0)
        if not given_listeners:
            config = replace(config, listeners=tuple(replace(e, port=0) for e in config.listeners))
        yield config
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _memory() -> Path | None:
    try:
        return _MEMORY if shutil.disk_usage(_MEMORY).free >= _LEAST_FREE_BYTES else None
    except OSError:
        return None


def occupy_standard_streams() -> None:
    """Put /dev/null where a parent has closed stdin, stdout or stderr: else a socket would get that number."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= _LAST_STANDARD:
        pass
    os.close(descriptor)
