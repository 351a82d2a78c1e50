"""Workers of a queue over HTTP while the broker is killed all the time, and what the queue promises them.

One client writes jobs. Workers receive them, and accept, release, reject or forget them. A receive is repeated under
its attempt, and a settlement as it is, until they are answered. The ledger says what cannot have happened:

    again        a record was delivered after its accept was answered
    two leases   a record was delivered while another worker held it under a lock that had not run out
    count        a later delivery has no higher count
    forgotten    in the end a record was neither accepted nor a dead letter
    both         a record was accepted and is a dead letter as well
    twice        a record is a dead letter more than once
"""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections import Counter
from typing import Any

import httpx

from tests.broker_process import BrokerProcess
from tests.clients.wire import Wire
from tests.crash.history import History

TOPIC, DEAD, QUEUE, PARTITIONS = "jobs", "jobs-dead", "workers", 3
WORKERS = 4
PAUSE = 0.02
# Longer than a restart on a busy machine takes, mostly; not always.
LOCK_MS = 4_000
DRAIN_SECONDS = 120.0
_AGAIN = {409, 429, 500, 502, 503, 504}
Job = tuple[int, int]


class QueueWorkers:
    """The threads of one run, and their ledger."""

    def __init__(self, broker: BrokerProcess, history: History, seed: int) -> None:
        self._broker, self._history, self._seed = broker, history, seed
        self._lock = threading.Lock()
        # Job → when its accept was answered; → the highest count that was delivered, and when.
        self._accepted: dict[Job, float] = {}
        self._counts: dict[Job, tuple[int, float]] = {}
        # Job → the worker that holds it, and until when by the wall clock.
        self._held: dict[Job, tuple[str, float]] = {}
        self.deliveries = 0
        self.writers = [threading.Thread(target=self._run, args=(self._write,), name="jobs")]
        self.workers = [
            threading.Thread(target=self._run, args=(self._work,), name=f"worker {number}")
            for number in range(WORKERS)
        ]

    def prepare(self) -> None:
        """Create topics and queue."""
        with httpx.Client(base_url=f"{self._broker.http}/api/v1", timeout=30, trust_env=False) as http:
            for topic in (TOPIC, DEAD):
                http.put(f"/topics/{topic}", json={"partitions": PARTITIONS}).raise_for_status()
            http.put(
                f"/queues/{QUEUE}",
                json={
                    "topics": [TOPIC], "start": "earliest", "lock_ms": LOCK_MS, "delivery_limit": 6,
                    "dead_letter": {"topic": DEAD},
                },
            ).raise_for_status()  # fmt: skip

    def _run(self, work: Any) -> None:
        try:
            work(random.Random(f"{threading.current_thread().name} {self._seed}"))
        except Exception as error:
            self._history.fail(f"{threading.current_thread().name}: {error!r}")

    def _call(self, http: httpx.Client, path: str, body: dict[str, Any], **headers: str) -> Any:
        """Send a request until it is answered; None at the end."""
        while not self._history.stop.is_set() and not self._history.failures:
            try:
                answer = http.post(f"/api/v1{path}", json=body, headers=headers)
            except httpx.HTTPError:
                time.sleep(PAUSE)
                continue
            if answer.status_code == 200:
                return answer.json()
            if answer.status_code not in _AGAIN:
                self._history.fail(f"{path}: {answer.status_code} {answer.text}")
            time.sleep(PAUSE)
        return None

    def _write(self, chance: random.Random) -> None:
        number = 0
        with httpx.Client(base_url=self._broker.http, timeout=10, trust_env=False) as http:
            while not self._history.enough.is_set() and not self._history.failures:
                records = [
                    {"partition": chance.randrange(PARTITIONS), "value": f"job {number + i}"}
                    for i in range(chance.randint(1, 8))
                ]
                number += len(records)
                self._call(
                    http,
                    f"/topics/{TOPIC}/records",
                    {"records": records},
                    **{"Idempotency-Key": f"job {number}"},
                )
                time.sleep(PAUSE)

    # --- workers -------------------------------------------------------------------------------------------

    def _work(self, chance: random.Random) -> None:
        with httpx.Client(base_url=self._broker.http, timeout=20, trust_env=False) as http:
            while not self._history.stop.is_set() and not self._history.failures:
                began = time.monotonic()
                body = {"max": chance.randint(1, 20), "wait_ms": 300, "attempt": str(uuid.uuid4())}
                got = self._call(http, f"/queues/{QUEUE}:receive", body)
                if got is None or not got["records"]:
                    continue
                jobs = self._deliver(got, began)
                self._settle(http, chance, jobs)

    def _deliver(self, got: Any, began: float) -> dict[Job, str]:
        jobs = {(one["partition"], one["offset"]): one for one in got["records"]}
        now, worker = time.monotonic(), threading.current_thread().name
        with self._lock:
            for job, record in jobs.items():
                count = record["delivery_count"]
                known, when = self._counts.get(job, (0, 0.0))
                if self._accepted.get(job, began) < began:
                    self._history.fail(f"again: {job} was accepted, and delivered for the {count}th time")
                if count <= known and when < began:
                    self._history.fail(f"count: {job} was delivered with {known} and later with {count}")
                holder, until = self._held.get(job, ("", 0.0))
                # The answer may have been a while on its way.
                if holder not in ("", worker) and until > time.time():
                    self._history.fail(f"two leases: {job} is held by {holder}, and was given to {worker}")
                self._counts[job] = max((count, now), (known, when))
                self._held[job] = worker, got["lock_until_ms"] / 1000 - 0.1
            self.deliveries += len(jobs)
        return {job: record["receipt"] for job, record in jobs.items()}

    def _settle(self, http: httpx.Client, chance: random.Random, jobs: dict[Job, str]) -> None:
        verbs: dict[str, list[Job]] = {"accept": [], "release": [], "reject": []}
        for job in jobs:
            verb = chance.choices(["accept", "release", "reject", ""], [80, 10, 5, 5])[0]
            if verb:
                verbs[verb].append(job)
        if not any(verbs.values()):
            return
        with self._lock:
            for job in jobs:
                self._held.pop(job, None)
        body: dict[str, Any] = {
            "accept": [jobs[job] for job in verbs["accept"]],
            "release": [
                {"receipt": jobs[job], "delay_ms": chance.choice([0, 50, 1_000])} for job in verbs["release"]
            ],
            "reject": [{"receipt": jobs[job], "reason": "no"} for job in verbs["reject"]],
        }
        answer = self._call(http, f"/queues/{QUEUE}:settle", body)
        if answer is None:
            return
        with self._lock:
            for job, one in zip(verbs["accept"], answer["accept"], strict=True):
                if one["outcome"] in ("settled", "late"):
                    self._accepted.setdefault(job, time.monotonic())

    # --- the end -------------------------------------------------------------------------------------------

    def drained(self) -> bool:
        """Return whether everything is accepted or a dead letter, as far as the queue says."""
        try:
            with httpx.Client(base_url=f"{self._broker.http}/api/v1", timeout=30, trust_env=False) as http:
                stats = http.get(f"/queues/{QUEUE}/stats").raise_for_status().json()
        except httpx.HTTPError:
            return False
        counts = ("available", "in_flight", "delayed", "archiving")
        return not any(one[count] for one in stats["partitions"] for count in counts)

    def drain(self) -> None:
        """Wait until nothing is left."""
        until = time.monotonic() + DRAIN_SECONDS
        while not self.drained() and time.monotonic() < until and not self._history.failures:
            time.sleep(0.5)
        assert self.drained(), "the queue is not empty"

    def check(self) -> str:
        """Compare the ledger with the logs. Raises AssertionError."""
        with Wire(self._broker.kafka_address) as wire:
            jobs = {
                (partition, message.offset)
                for partition in range(PARTITIONS)
                for message in wire.read_from(TOPIC, 0, partition=partition)
            }
        dead = self._dead_letters()
        twice = [job for job, count in dead.items() if count > 1]
        assert not twice, f"twice in the dead letters: {twice[:10]}"
        forgotten = jobs - set(self._counts)
        assert not forgotten, f"never delivered: {sorted(forgotten)[:10]}"
        both = set(self._accepted) & set(dead)
        assert not both, f"accepted and dead letters: {sorted(both)[:10]}"
        assert dead.keys() <= jobs and self._accepted.keys() <= jobs
        return f"{len(jobs)} jobs, {self.deliveries} deliveries, {len(dead)} dead letters"

    def _dead_letters(self) -> Counter[Job]:
        found: Counter[Job] = Counter()
        with httpx.Client(base_url=f"{self._broker.http}/api/v1", timeout=30, trust_env=False) as http:
            for partition in range(PARTITIONS):
                offset = 0
                while True:
                    page = (
                        http.get(
                            f"/topics/{DEAD}/partitions/{partition}/records",
                            params={"offset": offset, "limit": 1_000},
                        )
                        .raise_for_status()
                        .json()
                    )
                    for record in page["records"]:
                        headers = {one["name"]: one["value"] for one in record["headers"]}
                        found[
                            int(headers["__dlq.errors.partition"]), int(headers["__dlq.errors.offset"])
                        ] += 1
                    if not page["records"]:
                        break
                    offset = page["next_offset"]
        return found
