"""`sluice serve --workers N` as its users run it: a parent and its workers, killed, replaced and stopped."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import psutil
import pytest

from tests.broker_process import BrokerProcess

WAIT = 60.0
# The Kafka listener asks for a login in one of the two: then the workers other than worker 0 only forward.
RELAYS = "kafka?auth=plain"


def until(check: Callable[[], bool], what: str) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + WAIT
    while not check():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


class Workers(BrokerProcess):
    """A parent with workers."""

    def wait_ready(self) -> None:
        """Wait until worker 0 answers. The Kafka listener may have options."""
        file = self.data_dir / "listeners.json"

        def ready() -> bool:
            assert self.running, self.read_log()
            try:
                urls = [urlsplit(url) for url in json.loads(file.read_text())]
                self.ports["http"] = next(url.port or 0 for url in urls if url.scheme == "http")
                return self.get("/readyz").status_code == 200
            except (OSError, ValueError, httpx.TransportError):
                return False

        until(ready, "not ready")

    def workers(self) -> list[psutil.Process]:
        """The processes of the workers, in the order of their start."""
        return sorted(psutil.Process(self.pid).children(), key=lambda one: one.create_time())

    def get(self, path: str) -> httpx.Response:
        """Ask over a connection of its own."""
        return httpx.get(self.http + path, timeout=30, trust_env=False)

    def up(self) -> bool:
        """Whether all workers answer."""
        answer = self.get("/metrics")
        found = re.findall(r'sluice_worker_up\{worker="(\d+)"\} (\d)', answer.text)
        return answer.status_code == 200 and all(value == "1" for _, value in found)


QUICK = {"SLUICE_GROUP_INITIAL_REBALANCE_DELAY_MS": "0", "SLUICE_WORKER_LINGER_MS": "500"}


@pytest.fixture(scope="module", params=["records", "relays", "cluster"])
def running(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Workers]:
    """Three workers: over the embedded broker in two ways, and over a cluster, which is another process."""
    directory = tmp_path_factory.mktemp("workers")
    workers = Workers(directory / "data", options=["--workers", "3"], environment=QUICK)
    cluster = BrokerProcess(directory / "cluster", environment=QUICK)
    if request.param == "relays":
        workers.ports = {"http": 0, RELAYS: 0}
    elif request.param == "cluster":
        cluster.start()
        workers.ports = {"http": 0}
        workers.options += ["--upstream", cluster.kafka]
    try:
        workers.start()
        until(lambda: len(workers.workers()) == 3 and workers.up(), f"no answer: {workers.read_log()}")
        yield workers
        assert workers.stop() == 0, workers.read_log()
    finally:
        # The workers end with their parent.
        workers.kill()
        cluster.kill()


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Workers]]:
    """Makes processes that end with the test."""
    made: list[Workers] = []

    def one(name: str, *options: str) -> Workers:
        made.append(Workers(tmp_path / name, options=options))
        return made[-1]

    yield one
    for process in made:
        process.kill()


class Load(threading.Thread):
    """Writes and reads all the time; `errors` has what failed, `done` counts what did not."""

    def __init__(self, base: str, *, keep_alive: bool) -> None:
        super().__init__(daemon=True)
        self.base = base
        self.keep_alive = keep_alive
        self.stopping = threading.Event()
        self.errors: list[str] = []
        self.done = 0

    def run(self) -> None:
        """Send requests one after another."""
        client = httpx.Client(base_url=self.base, timeout=60, trust_env=False)
        number = 0
        while not self.stopping.is_set():
            number += 1
            try:
                key = {"idempotency-key": f"{id(self)}-{number}"} if number % 2 else {}
                answers = [
                    client.post("/api/v1/topics/load/records", content=b"v", headers=key),
                    client.get("/api/v1/topics/load/partitions/0/records?offset=0&limit=1"),
                    client.get("/api/v1/groups/load/consumers"),
                ]
                self.errors += [
                    f"{a.request.url}: {a.status_code} {a.text}" for a in answers if not a.is_success
                ]
                self.done += len(answers)
            except httpx.TransportError as error:
                self.errors.append(repr(error))
            if not self.keep_alive:
                client.close()
                client = httpx.Client(base_url=self.base, timeout=60, trust_env=False)
        client.close()

    def end(self) -> None:
        """Stop."""
        self.stopping.set()
        self.join(WAIT)


def replaced(broker: Workers, before: set[int]) -> bool:
    """Whether all workers are others than before."""
    now = {one.pid for one in broker.workers()}
    return len(now) == 3 and not now & before


def test_what_one_worker_is_told_all_know(running: Workers) -> None:
    for number in range(12):
        answer = httpx.post(f"{running.http}/api/v1/topics/all/records", content=f"{number}", trust_env=False)
        assert answer.status_code == 200
        assert len(answer.json()["records"]) == 1
    body = {"name": "r", "topics": ["all"], "start": "earliest"}
    created = httpx.post(f"{running.http}/api/v1/groups/g/consumers", json=body, trust_env=False)
    assert created.status_code == 201
    values: list[int] = []

    def poll() -> bool:
        path = f"{running.http}/api/v1/groups/g/consumers/r"
        polled = httpx.post(f"{path}:poll", json={"wait_ms": 1_000}, trust_env=False).json()
        values.extend(record["value"] for record in polled["records"])
        if polled["records"]:
            assert httpx.post(f"{path}:ack", json={"ack": polled["ack"]}, trust_env=False).is_success
        return len(values) == 12

    until(poll, "the records do not arrive")
    assert values == list(range(12))
    text = running.get("/metrics").text
    families = [line for line in text.splitlines() if line.startswith("# TYPE")]
    assert len(set(families)) == len(families)
    assert {'worker="0"', 'worker="1"', 'worker="2"'} <= set(re.findall(r'worker="\d"', text))


def test_a_worker_that_is_killed_is_started_again_and_the_others_serve(running: Workers) -> None:
    victim = running.workers()[-1]
    victim.kill()
    for _ in range(20):
        assert running.get("/api/v1/topics").status_code == 200
    until(lambda: len(running.workers()) == 3 and running.up(), "not started again")
    assert victim.pid not in {one.pid for one in running.workers()}
    assert "has ended (signal 9); it is started again" in running.read_log()


def test_a_rolling_restart_under_load_has_no_errors(running: Workers) -> None:
    assert running.get("/livez").status_code == 200
    load = [Load(running.http, keep_alive=keep) for keep in (True, False)]
    for one in load:
        one.start()
    until(lambda: all(one.done > 20 for one in load), "no load")
    before = {one.pid for one in running.workers()}
    os.kill(running.pid, signal.SIGUSR2)
    until(
        lambda: replaced(running, before) and "all workers are replaced" in running.read_log(), "not replaced"
    )
    done = [one.done for one in load]
    until(lambda: all(one.done > n + 10 for one, n in zip(load, done, strict=True)), "no load afterwards")
    for one in load:
        one.end()
    assert [one.errors for one in load] == [[], []], running.read_log()
    assert running.up()


def test_the_end_of_the_parent_ends_the_workers(running: Workers) -> None:
    workers = running.workers()
    running.kill()
    _, alive = psutil.wait_procs(workers, timeout=WAIT)
    assert alive == []
    # The directory is free, and the data are whole.
    running.start()
    until(lambda: len(running.workers()) == 3, "not started")


def test_settings_that_cannot_be_used_replace_no_worker(tmp_path: Path, make: Callable[..., Workers]) -> None:
    file = tmp_path / "sluice.toml"
    file.write_text('log_level = "info"\n')
    broker = make("data", "--workers", "2", "--config", str(file)).start()
    until(lambda: len(broker.workers()) == 2 and broker.up(), "not started")
    before = {one.pid for one in broker.workers()}
    file.write_text("log_level = 3\n")
    os.kill(broker.pid, signal.SIGUSR2)
    until(lambda: "no worker was replaced" in broker.read_log(), "no word about the settings")
    assert {one.pid for one in broker.workers()} == before
    other = make("other", "--workers", "2")
    other.ports = {"http": broker.ports["http"]}
    other.spawn()
    assert other.process is not None
    assert other.process.wait(WAIT) == 1
    assert "the port is taken" in other.read_log()
    assert broker.stop() == 0


def test_a_first_start_that_fails_is_one_line(tmp_path: Path, make: Callable[..., Workers]) -> None:
    broker = make("data").start()
    second = make("data", "--workers", "2")
    second.log = tmp_path / "second.log"
    second.spawn()
    assert second.process is not None
    assert second.process.wait(WAIT) == 1
    (line,) = second.read_log().splitlines()
    assert "is in use by the process" in line
    assert broker.stop() == 0
