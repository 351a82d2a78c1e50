"""Running the application: sockets, signals, and what is told about where it listens.

The order of a stop. The first SIGTERM, Ctrl-C or SIGHUP (the terminal is gone) drains the broker, which answers
every waiting poll; then the HTTP server finishes what is under way and closes; then the broker flushes and writes
its clean-shutdown marker. A second signal ends the process at once, as a crash would: nothing acknowledged is lost
by that.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TextIO

import uvicorn

from app.ephemeral import addresses, ephemeral, watch_parent
from app.http.protocol import HttpProtocol
from app.logs import access_log, configured
from app.main import Application, create_app
from app.version import VERSION
from core.config import Config, Endpoint
from core.errors import StartupError

log = logging.getLogger(__name__)

LISTENERS_FILE = "listeners.json"
BACKLOG = 2048
SIGNALS = (signal.SIGINT, signal.SIGTERM)


class HttpServer(uvicorn.Server):
    """uvicorn, with our own signals and no polling while nothing happens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Finish what is under way, take nothing new."""
        self.should_exit = True
        self._stopping.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are `serve`'s business."""
        yield

    async def main_loop(self) -> None:
        """Refresh the Date header once a second until `stop`."""
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), 1.0)


# Objects made before the collector looks for cycles. Requests make few that last; 700 is Python's default.
_COLLECT_AFTER = 20_000
# The number of stderr.
_LAST_STANDARD = 2


def bind(endpoints: Sequence[Endpoint]) -> list[socket.socket]:
    """Bind a listening socket for each endpoint. Raises StartupError when a port is taken or an address foreign."""
    sockets: list[socket.socket] = []
    try:
        for endpoint in endpoints:
            sockets.append(_bind_one(endpoint))
    except StartupError:
        for one in sockets:
            one.close()
        raise
    return sockets


def _bind_one(endpoint: Endpoint) -> socket.socket:
    try:
        found = socket.getaddrinfo(
            endpoint.host, endpoint.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        # A name may stand for IPv4 and IPv6; one socket is enough, and most clients try IPv4 first.
        family, kind, protocol, _, address = min(found, key=lambda info: info[0] != socket.AF_INET)
        one = socket.socket(family, kind, protocol)
    except OSError as error:
        raise StartupError(f"Cannot listen on {endpoint}: {error.strerror}.") from None
    try:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        one.setblocking(False)
        one.bind(address)
        # Listening at once makes a second process fail at its bind, not later.
        one.listen(BACKLOG)
    except OSError as error:
        one.close()
        reason = error.strerror or str(error)
        raise StartupError(
            f"Cannot listen on {endpoint}: {reason}. Stop what listens there, or choose another address "
            "with --listener."
        ) from None
    return one


def real_endpoint(endpoint: Endpoint, bound: socket.socket) -> Endpoint:
    """The endpoint with the port that the system has chosen."""
    return Endpoint(endpoint.scheme, endpoint.host, bound.getsockname()[1])


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
    """Print for whoever may watch. A terminal that was closed or a full disk behind `>` must not stop the broker."""
    stream = stream or sys.stdout
    try:
        print(text, file=stream, flush=True)
    except OSError:
        # What is left in the stream's buffer would fail once more at the exit.
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)


def announcement(config: Config, endpoints: Sequence[Endpoint]) -> str:
    """What is printed at the start: what listens where, and a line to try."""
    lines = [f"Sluice {VERSION}, data in {config.data_dir}"]
    width = max([len("Kafka "), *(len(_door(endpoint)) for endpoint in endpoints)])
    lines += [f"  {_door(endpoint):{width}} {endpoint}" for endpoint in endpoints]
    http = next((e for e in endpoints if e.scheme == "http"), None)
    if http is not None:
        lines.append(
            f"Open {reachable(http)}/console in a browser; {reachable(http)}/docs describes the API."
        )
        lines.append(f"Try: curl -d 'Hello' {reachable(http)}/api/v1/topics/hello/records")
    lines.append("Ctrl-C stops it.")
    return "\n".join(lines)


def _door(endpoint: Endpoint) -> str:
    return {"http": "HTTP", "kafka": "Kafka", "kafka07": "Kafka 0.7", "text": "Lines"}.get(
        endpoint.scheme, endpoint.scheme
    )


def reachable(endpoint: Endpoint) -> Endpoint:
    """An address to connect to: a wildcard is no such address, loopback is."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(endpoint.host, endpoint.host)
    return Endpoint(endpoint.scheme, host, endpoint.port)


async def serve(config: Config, parent: int | None = None) -> None:
    """Start everything, run until a signal, stop everything. Raises StartupError.

    With `parent` it is a broker for tests: it prints its addresses as JSON, and stops when that process has ended.
    """
    http = [e for e in config.listeners if e.scheme == "http"]
    sockets = bind(http)
    try:
        app = create_app(config)
        server = server_of(app, config)
        with access_log(config) as app.traffic.visits, _signals(app, server):
            async with app.lifespan():
                app.metrics.http_connections = lambda: len(server.server_state.connections)
                bound = [real_endpoint(e, s) for e, s in zip(http, sockets, strict=True)]
                app.gateway.http_endpoints = bound
                endpoints = [*bound, *app.server.endpoints]
                write_listeners(Path(config.data_dir), endpoints)
                say(announcement(config, endpoints) if parent is None else addresses(endpoints))
                _settle_garbage()
                app.control.when_loaded = gc.freeze
                async with _watched(parent, partial(_stop, app, server)):
                    await server.serve(sockets=sockets)
                # What was told is no longer true.
                (Path(config.data_dir) / LISTENERS_FILE).unlink(missing_ok=True)
    finally:
        for one in sockets:
            one.close()


def _stop(app: Application, server: HttpServer) -> None:
    """Answer what waits, then finish what is under way."""
    if not server.should_exit:
        app.drain()
        server.stop()


@contextlib.asynccontextmanager
async def _watched(parent: int | None, stop: Callable[[], None]) -> AsyncIterator[None]:
    """Stop when the parent process has ended, if there is one to watch."""
    watch = asyncio.ensure_future(watch_parent(parent, stop)) if parent is not None else None
    try:
        yield
    finally:
        if watch is not None:
            watch.cancel()


def _settle_garbage() -> None:
    """What the start has made stays for good: the collector need not look at it again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_COLLECT_AFTER, 20, 50)


def server_of(app: Application, config: Config) -> HttpServer:
    """The HTTP server that runs an application under one configuration."""
    return HttpServer(
        uvicorn.Config(
            # Without lifespans and websockets there is nothing left for the application itself to do.
            app.front,
            http=HttpProtocol.limited(config),
            ws="none",
            # Nobody tells us who a client is, or by which scheme it came.
            proxy_headers=False,
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=config.idle_timeout_ms // 1000,
            timeout_graceful_shutdown=max(1, config.drain_timeout_ms // 1000),
            backlog=BACKLOG,
        )
    )


@contextlib.contextmanager
def _signals(app: Application, server: HttpServer) -> Iterator[None]:
    """The first signal stops in order, the second at once."""
    loop = asyncio.get_running_loop()

    def handle(number: signal.Signals) -> None:
        if server.should_exit:
            say("Stopped at once.", sys.stderr)
            os._exit(128 + number)
        say("Stopping.")
        _stop(app, server)

    # nohup has it ignored, and so shall it stay.
    hung_up = [signal.SIGHUP] if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN else []
    heard = [*SIGNALS, *hung_up]
    for number in heard:
        loop.add_signal_handler(number, handle, number)
    try:
        yield
    finally:
        for number in heard:
            loop.remove_signal_handler(number)


def _occupy_standard_streams() -> None:
    """Put /dev/null where a parent has closed stdin, stdout or stderr: else a socket would get that number."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= _LAST_STANDARD:
        pass
    os.close(descriptor)


def run_ephemeral(config: Config, *, given_listeners: bool) -> int:
    """Run a broker for tests until it is stopped or its parent process ends; return the exit code."""
    parent = os.getppid()
    with ephemeral(config, given_listeners=given_listeners) as temporary:
        return run(temporary, parent)


def run(config: Config, parent: int | None = None) -> int:
    """Run until stopped; the exit code. A start that fails is one line on stderr. `parent`: see `serve`."""
    _occupy_standard_streams()
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
