"""One worker: what `app.serve` does for a single process, with sockets and orders from the parent.

The order of a stop, by a signal or the end of the parent: accept no more, answer for a moment on the connections that
are open, end long polls, finish the requests under way, close the broker.
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
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from app import first_user
from app.gateway_settings import MAX_WORKERS
from app.gateways.forwarding import Forwarding, Level
from app.gateways.links import Links, Target
from app.gateways.setup import MARGIN_SECONDS, gateway_level
from app.http.application import HttpApplication
from app.http.metrics import LoopDelay, Traffic, Visits
from app.http.server import HttpServer
from app.logs import LABELS, access_log, configured
from app.main import Application, create_app
from app.serve import announcement, occupy_standard_streams, say, settle_garbage, write_listeners
from app.settings import open_listeners
from app.workers.merged import Merged
from app.workers.parent import DIRECTORY
from app.workers.policy import LEVEL, Part, asks_login, part_of, plain_kafka, policy_of
from app.workers.relay import relay_application
from app.workers.spec import ADOPT, CHECK, READY, RELEASE, Spec
from core.clock import Clock
from core.config import Config, Endpoint, Upstream
from core.errors import StartupError
from core.security.addresses import Addresses
from core.security.quotas import QuotaTable
from core.security.tls import Certificates

log = logging.getLogger("sluice.workers")

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_MAX_LINE = 4_096


def run_worker(config: Config, spec: Spec) -> int:
    """Run one worker until it is stopped; return its exit code. For `CHECK` only look at the settings."""
    http = [one for one in config.listeners if one.scheme == "http"]
    if len(http) != len(spec.http) or config.workers != spec.workers:
        print(
            "sluice: a rolling restart cannot change the HTTP listeners or the number of workers. Stop and start.",
            file=sys.stderr,
        )
        return 2
    if spec.number == CHECK:
        return 0
    occupy_standard_streams()
    LABELS["worker"] = spec.name
    # The audit log and the like are one file for all, which each opens to append.
    own = _own_settings(config, spec)
    try:
        import uvloop

        with configured(own), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(config, own, spec))
    except StartupError as error:
        print(f"sluice: worker {spec.name}: {error}", file=sys.stderr)
        return 1
    return 0


def _own_settings(config: Config, spec: Spec) -> Config:
    """Return the settings of this worker: its data directory, its TCP listeners, the broker of worker 0."""
    part = part_of(config, spec.number)
    directory = Path(spec.home) / DIRECTORY / f"worker-{spec.name}"
    if spec.number == 0:
        ports = iter(spec.ports)
        listeners = tuple(
            replace(one, port=next(ports, one.port)) if one.scheme != "http" else one
            for one in config.listeners
        )
        return replace(config, listeners=listeners)
    http = tuple(one for one in config.listeners if one.scheme == "http")
    changed = replace(config, listeners=http, data_dir=directory, zookeeper="")
    if part is Part.RECORDS:
        return replace(changed, upstream=Upstream((spec.kafka,)))
    return changed


def forwarding_of_worker(config: Config, own: Config, spec: Spec, clock: Clock) -> Forwarding:
    """Return the forwarding of one worker: to other gateways, if there are any, and to the other workers."""
    links = {
        str(number): Links(
            Target(unix=Path(path)),
            clock,
            connect_timeout_ms=config.gateway_connect_timeout_ms,
            most=config.http_max_connections,
            # The other side closes them after the whole time.
            idle_seconds=config.worker_linger_ms / 2_000,
            answer_seconds=config.max_wait_ms / 1_000 + MARGIN_SECONDS,
        )
        for number, path in enumerate(spec.paths)
    }
    policy = policy_of(config, spec.number, spec.workers)
    secret = bytes.fromhex(spec.secret)
    workers = Level(LEVEL, spec.name, secret, policy, links, hold_ms=config.worker_hold_ms, local=True)
    levels = [workers]
    if (gateways := gateway_level(own, clock)) is not None:
        relays = part_of(config, spec.number) is not Part.WHOLE
        # Worker 0 knows the owners for those that only forward to it.
        levels.insert(0, gateways._replace(owner=None) if relays else gateways)
    return Forwarding(levels, clock, Merged(workers, links))


class Worker(NamedTuple):
    """What a worker is started with: the settings as given, its own ones, the parent's spec, its clock and addresses.

    `bound` are the HTTP listeners with their ports.
    """

    config: Config
    own: Config
    spec: Spec
    clock: Clock
    bound: list[Endpoint]


class Serving(NamedTuple):
    """The parts of a running worker. `app` is None in a relay."""

    http: HttpApplication
    traffic: Traffic
    certificates: Certificates
    addresses: Addresses
    app: Application | None

    def reload(self) -> None:
        """Read certificates and credentials again."""
        if self.app is not None:
            self.app.server.reload()
        else:
            self.certificates.reload()

    def drain(self) -> None:
        """End long polls."""
        if self.app is not None:
            self.app.drain()


async def _serve(config: Config, own: Config, spec: Spec) -> None:
    """Start, tell the parent, run until a signal or the end of the parent, stop. Raises StartupError."""
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    for number in _SIGNALS:
        loop.add_signal_handler(number, stopping.set)
    # The parent decides about both: a rolling restart is none of a single worker's.
    for number in (signal.SIGHUP, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    sockets = _sockets(spec, spec.number)
    http = [one for one in own.listeners if one.scheme == "http"]
    bound = [replace(e, port=s.getsockname()[1]) for e, s in zip(http, sockets, strict=True)]
    worker = Worker(config, own, spec, Clock(), bound)
    unix = socket.socket(fileno=spec.unix)
    with access_log(own) as visits:
        async with _opened(worker, visits) as serving:
            served = serving.certificates.by_name()
            certificates = [*(served[e.tls] if e.tls else None for e in bound), None]
            server = HttpServer(
                serving.http,
                [*sockets, unix],
                own,
                worker.clock,
                serving.traffic,
                certificates,
                serving.addresses,
            )
            await server.start()
            loop.add_signal_handler(signal.SIGUSR1, serving.reload)
            settle_garbage()
            with Control(spec, server, stopping.set) as control:
                _tell_ready(control, worker, serving)
                await stopping.wait()
                await server.linger(own.worker_linger_ms / 1_000)
                serving.drain()
                await server.stop()


def _sockets(spec: Spec, number: int) -> list[socket.socket]:
    """Return the HTTP sockets of a worker, as descriptors of this process that it may close."""
    found = [socket.socket(fileno=os.dup(listener[number])) for listener in spec.http]
    for one in found:
        one.setblocking(False)
    return found


@asynccontextmanager
async def _opened(worker: Worker, visits: Visits | None) -> AsyncIterator[Serving]:
    """Open the broker, the gateway or the relay of this worker. Raises StartupError."""
    own, clock = worker.own, worker.clock
    forwarding = forwarding_of_worker(worker.config, own, worker.spec, clock)
    if part_of(worker.config, worker.spec.number) is Part.RELAY:
        async with _relay(own, clock, forwarding, visits) as relay:
            yield relay
        return
    app = create_app(
        own, clock, http_endpoints=worker.bound, visits=visits, when_loaded=gc.freeze, forwarding=forwarding
    )
    async with app.lifespan():
        if worker.spec.number == 0:
            await first_user.prepare(own, app.server.broker.users)
        yield Serving(app.http, app.traffic, app.server.certificates, app.server.addresses, app)


@asynccontextmanager
async def _relay(
    own: Config, clock: Clock, forwarding: Forwarding, visits: Visits | None
) -> AsyncIterator[Serving]:
    traffic, delay = Traffic(own, clock, visits), LoopDelay(clock)
    certificates = Certificates(own, clock)
    certificates.load()
    certificates.start()
    delay.start()
    try:
        http = relay_application(own, clock, traffic, forwarding, delay)
        yield Serving(http, traffic, certificates, Addresses(own, clock, QuotaTable()), None)
    finally:
        delay.stop()
        certificates.stop()
        forwarding.close()


def _tell_ready(control: Control, worker: Worker, serving: Serving) -> None:
    """Tell the parent that this worker answers. Worker 0 also writes and prints the addresses."""
    spec, config, own = worker.spec, worker.config, worker.own
    if spec.number == 0:
        _warn_of_others(config, spec)
    tcp = [] if serving.app is None else list(serving.app.server.endpoints)
    place = plain_kafka(config)
    kafka = tcp[place].reachable.address if spec.number == 0 and place is not None and tcp else ""
    if spec.number == 0 and serving.app is not None:
        endpoints = [*worker.bound, *tcp]
        write_listeners(Path(spec.home), endpoints)
        if spec.announce:
            shown = replace(own, data_dir=Path(spec.home))
            said = announcement(shown, endpoints, serving.certificates.by_name().values())
            first, _, rest = said.partition("\n")
            say(f"{first}, {spec.workers} workers\n{rest}")
            first_user.announce(
                own, endpoints, serving.app.server.broker.users, serving.app.setup,
                terminal=sys.stdout is not None and sys.stdout.isatty(), say=say,
            )  # fmt: skip
            for endpoint in open_listeners(endpoints, own.tls):
                log.warning(
                    "the listener %s can be reached from other machines, and its clients need not log in",
                    endpoint,
                )
    control.tell(f"{READY} {json.dumps({'ports': [one.port for one in tcp], 'kafka': kafka})}")


def _warn_of_others(config: Config, spec: Spec) -> None:
    """Log which directories hold consumers and keys of workers that are not started any more."""
    if config.upstream is None or asks_login(config):
        return
    directory = Path(spec.home) / DIRECTORY
    names = [f"worker-{number}" for number in range(spec.workers, MAX_WORKERS)]
    if left := [name for name in names if (directory / name).is_dir()]:
        log.warning(
            "%s has consumers and keys of more workers than are started: %s. Start with the old number of --workers "
            "to reach them; their groups continue at the committed offsets without them",
            directory,
            ", ".join(left),
        )


class Control:
    """The socket to the parent: its orders, and its end."""

    def __init__(self, spec: Spec, server: HttpServer, stop: Callable[[], None]) -> None:
        self._spec = spec
        self._server = server
        self._stop = stop
        self._socket = socket.socket(fileno=spec.control)
        self._received = b""
        # Orders are carried out one after another.
        self._orders: asyncio.Queue[tuple[str, int]] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None

    def __enter__(self) -> Control:
        self._socket.setblocking(False)
        asyncio.get_running_loop().add_reader(self._socket, self._read)
        self._task = asyncio.create_task(self._carry_out())
        return self

    def __exit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
        asyncio.get_running_loop().remove_reader(self._socket)
        self._socket.close()

    def tell(self, line: str) -> None:
        """Send a line to the parent; it may have ended."""
        with contextlib.suppress(OSError):
            self._socket.sendall(line.encode() + b"\n")

    def _read(self) -> None:
        try:
            data = self._socket.recv(_MAX_LINE)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._stop()
            return
        *lines, self._received = (self._received + data).split(b"\n")
        for line in lines:
            word, _, number = line.decode().partition(" ")
            self._orders.put_nowait((word, int(number)))

    async def _carry_out(self) -> None:
        while True:
            word, number = await self._orders.get()
            if word == ADOPT:
                await self._server.adopt(number, _sockets(self._spec, number))
            elif word == RELEASE:
                self._server.release(number)
