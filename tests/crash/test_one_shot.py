"""Transactions of one request against a server that is killed: each output is written once, each offset fences."""

from __future__ import annotations

import json
import random
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.broker_process import BrokerProcess

RECORDS = 1_000
KILLS = 2


class Worker(threading.Thread):
    """Sends requests, each again and again until it is answered. `work` is called until it returns False."""

    def __init__(self, broker: BrokerProcess, work: Callable[[Worker], bool]) -> None:
        super().__init__(daemon=True)
        self.broker, self.work = broker, work
        self.repeated = self.replayed = self.done = 0
        self.given_up = False
        self.failure: str | None = None

    def run(self) -> None:
        """Work until there is nothing to do, or something is wrong."""
        try:
            while self.work(self):
                self.done += 1
        except Exception as error:
            self.failure = repr(error)

    def post(self, path: str, body: Any, key: str | None = None) -> Any:
        """The answer."""
        first = True
        while not self.given_up:
            request = urllib.request.Request(f"{self.broker.http}/api/v1{path}", json.dumps(body).encode())
            request.add_header("content-type", "application/json")
            if key is not None:
                request.add_header("idempotency-key", key)
            try:
                with urllib.request.urlopen(request, timeout=20) as answer:
                    self.replayed += "idempotent-replayed" in answer.headers
                    return json.loads(answer.read())
            except urllib.error.HTTPError as error:
                document = error.read()
                # The other request with the key is still under way, the group agrees, the server starts.
                if error.code not in (409, 503) or b"actual" in document:
                    raise AssertionError(f"{path}: {error.code} {document!r}") from None
            except OSError:
                self.repeated += first
                first = False
            time.sleep(0.02)
        raise AssertionError(f"{path}: no answer")


def values(worker: Worker, topic: str) -> list[int]:
    found: list[int] = []
    offset, caught_up = 0, False
    while not caught_up:
        url = f"{worker.broker.http}/api/v1/topics/{topic}/partitions/0/records?offset={offset}&limit=5000"
        with urllib.request.urlopen(url, timeout=20) as answer:
            page = json.loads(answer.read())
        found += [record["value"] for record in page["records"]]
        offset, caught_up = page["next_offset"], page["caught_up"]
    return found


@pytest.mark.timeout(300)
def test_outputs_are_written_once_and_offsets_fence_however_often_the_server_is_killed(
    tmp_path: Path,
) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    broker = BrokerProcess(tmp_path / "data").start()
    killed = threading.Event()
    poll = "/groups/g/consumers/c:poll"
    token: list[str | None] = [None]
    seen: list[int] = []

    def pipe(worker: Worker) -> bool:
        """Double each value of `in` into `out`; the group's offsets move with it."""
        body: dict[str, Any] = {"limit": 20, "wait_ms": 200}
        if token[0] is not None:
            body |= {"ack": token[0], "records": {"out": [{"value": 2 * n} for n in seen]}}
        batch = worker.post(poll, body)
        finished = RECORDS - 1 in seen
        token[0], seen[:] = batch["ack"], [record["value"] for record in batch["records"]]
        return not finished

    def chain(worker: Worker) -> bool:
        """Count up: each request expects the offset of the one before."""
        n = worker.done
        offset = {"group": "h", "topic": "in", "partition": 0, "offset": n + 1, "expected": n or None}
        worker.post(
            "/transactions", {"records": {"count": [{"value": n}]}, "offsets": [offset]}, f"count-{n}"
        )
        return n + 1 < RECORDS and not killed.is_set()

    try:
        setup = Worker(broker, lambda worker: False)
        setup.post("/topics/in/records", {"records": [{"value": n} for n in range(RECORDS)]})
        setup.post("/groups/g/consumers", {"name": "c", "topics": ["in"]})
        workers = [Worker(broker, pipe), Worker(broker, chain)]
        for worker in workers:
            worker.start()
        for number in range(KILLS):
            # In the middle of the work, of which each batch is a fiftieth.
            while workers[0].done < 10 + 15 * number and workers[0].is_alive():
                time.sleep(0.001)
            time.sleep(chance.uniform(0, 0.02))
            broker.kill()
            broker.start()
        killed.set()
        for worker in workers:
            worker.join(120)
            worker.given_up = True
        assert [worker.failure for worker in workers] == [None, None]
        assert not any(worker.is_alive() for worker in workers)
        assert values(setup, "out") == [2 * n for n in range(RECORDS)]
        assert values(setup, "count") == list(range(workers[1].done + 1))
        assert sum(worker.repeated for worker in workers), "no kill hit a request"
        print([(worker.done, worker.repeated, worker.replayed) for worker in workers])
    finally:
        broker.kill()
