"""The gateway loop: three gateways over one cluster; again and again one is killed or stopped in order.

The clients know all three and use them in turn, as a balancer without stickiness does. Each has one history:

- keyed writers send a value until it is acknowledged, to whatever gateway comes next: it is in the log once, at the
  offset that was acknowledged;
- managed consumers poll and acknowledge through all gateways: every record is acknowledged, and none is delivered
  again after its acknowledgement;
- v2 consumers read and commit through all gateways, and create their instance again only if it is unknown: every
  record is read;
- listeners of a stream reconnect elsewhere with Last-Event-ID: every record once, in order.

While a gateway is down, requests to the other two that have no owner, or one of these two, must not fail.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from app.gateways.ownership import owner_of
from tests.broker_process import BrokerProcess
from tests.ports import free_ports

NAMES = ("a", "b", "c")
TOPIC = "loop"
PARTITIONS = 3
FINISH_SECONDS = 120.0
QUICK = {"SLUICE_GROUP_INITIAL_REBALANCE_DELAY_MS": "200"}
# What a client may repeat: the owner is down, or the cluster is not ready for the answer.
RETRIABLE = frozenset({409, 429, 500, 502, 503, 504})
JSON_V2 = {"content-type": "application/vnd.kafka.v2+json"}


class Gateways:
    """Three gateways over one cluster, which is a broker of its own."""

    def __init__(self, directory: Path) -> None:
        self.by_name: dict[str, BrokerProcess] = {}
        self.cluster = BrokerProcess(directory / "cluster", environment=QUICK)
        try:
            self._start(directory)
        except BaseException:
            self.stop()
            raise
        self._turn = itertools.cycle(NAMES)
        self._lock = threading.Lock()

    def _start(self, directory: Path) -> None:
        self.cluster.start()
        secret = directory / "secret"
        secret.write_text("of the three gateways, in this loop\n")
        secret.chmod(0o600)
        ports = free_ports(len(NAMES))
        listed = [f"{name}=http://127.0.0.1:{port}" for name, port in zip(NAMES, ports, strict=True)]
        for name, port in zip(NAMES, ports, strict=True):
            options = ["--upstream", self.cluster.kafka, "--gateway-name", name]
            options += [part for one in listed for part in ("--gateway", one)]
            environment = {**QUICK, "SLUICE_GATEWAY_SECRET_FILE": str(secret)}
            one = BrokerProcess(directory / f"gateway-{name}", options=options, environment=environment)
            one.ports = {"http": port}
            self.by_name[name] = one
            one.start()

    def next(self) -> str:
        """The base URL of the gateway that comes next, whether it runs or not."""
        with self._lock:
            return self.by_name[next(self._turn)].http

    def stop(self) -> None:
        """Stop all."""
        for one in [*self.by_name.values(), self.cluster]:
            if one.running:
                one.kill()


class Client(threading.Thread):
    """A client in a thread. `problems` has every promise that was not kept; `finish` lets it end when it is done."""

    def __init__(self, gateways: Gateways, name: str) -> None:
        super().__init__(daemon=True, name=name)
        self.gateways = gateways
        self.problems: list[str] = []
        self.finishing = threading.Event()
        self.http = httpx.Client(timeout=15, trust_env=False)

    def ask(self, method: str, path: str, *, done: int = 0, **more: Any) -> httpx.Response | None:
        """Send a request to the next gateway; None if the client should try again.

        `done` is the status that says that an earlier try, whose answer was lost, has done it.
        """
        try:
            answer = self.http.request(method, self.gateways.next() + path, **more)
        except httpx.TransportError:
            time.sleep(0.02)
            return None
        if answer.status_code in RETRIABLE and answer.status_code != done:
            if answer.status_code == 503 and "retry-after" not in answer.headers:
                self.problems.append(f"{method} {path}: 503 without Retry-After: {answer.text}")
            if answer.status_code == 500:
                self.problems.append(f"{method} {path}: {answer.text}")
            time.sleep(0.05)
            return None
        return answer

    def until(self, method: str, path: str, **more: Any) -> httpx.Response:
        """Send a request until a gateway answers it for good."""
        deadline = time.monotonic() + FINISH_SECONDS
        while time.monotonic() < deadline:
            answer = self.ask(method, path, **more)
            if answer is not None:
                return answer
        raise AssertionError(f"{method} {path} was not answered within {FINISH_SECONDS} s")

    def run(self) -> None:
        """Work, and keep what went wrong."""
        try:
            self.work()
        except Exception as error:
            self.problems.append(f"{self.name}: {error!r}")
        finally:
            self.http.close()

    def work(self) -> None:
        """The work of a client."""
        raise NotImplementedError


class Writer(Client):
    """Writes numbered values under keys."""

    def __init__(self, gateways: Gateways, name: str) -> None:
        super().__init__(gateways, name)
        self.acknowledged: dict[str, tuple[int, int]] = {}

    def work(self) -> None:
        """Write until the end, each value until it is acknowledged."""
        for number in itertools.count():
            if self.finishing.is_set():
                return
            value = f"{self.name}-{number}"
            answer = self.until(
                "POST", f"/api/v1/topics/{TOPIC}/records", content=value, headers={"idempotency-key": value}
            )
            if answer.status_code != 200:
                self.problems.append(f"{value}: {answer.status_code} {answer.text}")
                continue
            (place,) = answer.json()["records"]
            self.acknowledged[value] = (place["partition"], place["offset"])
            time.sleep(0.01)


class Managed(Client):
    """A managed consumer of a group of its own."""

    def __init__(self, gateways: Gateways, name: str) -> None:
        super().__init__(gateways, name)
        self.acknowledged: Counter[tuple[int, int]] = Counter()

    def work(self) -> None:
        """Poll and acknowledge until a poll after the end finds nothing."""
        base = f"/api/v1/groups/{self.name}/consumers"
        body = {"name": "one", "topics": [TOPIC], "start": "earliest"}
        made = self.until("POST", base, json=body, done=409)
        if made.status_code not in (201, 409):
            self.problems.append(f"{self.name}: not created: {made.status_code} {made.text}")
            return
        empty = 0
        while empty < 3:
            polled = self.ask("POST", f"{base}/one:poll", json={"wait_ms": 500})
            if polled is None:
                continue
            if polled.status_code != 200:
                self.problems.append(f"{self.name}: poll: {polled.status_code} {polled.text}")
                return
            batch = polled.json()
            if not batch["records"]:
                empty += self.finishing.is_set()
                continue
            empty = 0
            acknowledged = self.until("POST", f"{base}/one:ack", json={"ack": batch["ack"]})
            if acknowledged.status_code != 200:
                self.problems.append(f"{self.name}: ack: {acknowledged.status_code} {acknowledged.text}")
                continue
            self.acknowledged.update((r["partition"], r["offset"]) for r in batch["records"])


class OldConsumer(Client):
    """A consumer of REST Proxy v2, which commits what it has read."""

    def __init__(self, gateways: Gateways, name: str) -> None:
        super().__init__(gateways, name)
        self.read: set[tuple[int, int]] = set()

    def work(self) -> None:
        """Read and commit until reads after the end find nothing."""
        base = f"/consumers/{self.name}"
        path = f"{base}/instances/one"
        accept = {"accept": "application/vnd.kafka.binary.v2+json"}
        options = {
            "name": "one",
            "format": "binary",
            "auto.offset.reset": "earliest",
            "auto.commit.enable": "false",
        }
        self.until("POST", base, json=options, headers=JSON_V2, done=409)
        self.until("POST", f"{path}/subscription", json={"topics": [TOPIC]}, headers=JSON_V2)
        empty = 0
        while empty < 3:
            answer = self.ask("GET", f"{path}/records?timeout=500", headers=accept)
            if answer is None:
                # The answer may have been lost on its way: read again from the committed offset.
                self._rewind(path)
                continue
            if answer.status_code != 200:
                self.problems.append(f"{self.name}: {answer.status_code} {answer.text}")
                return
            records = answer.json()
            self.read.update((r["partition"], r["offset"]) for r in records)
            if records:
                empty = 0
                self.until("POST", f"{path}/offsets", headers=JSON_V2)
            else:
                empty += self.finishing.is_set()

    def _rewind(self, path: str) -> None:
        partitions = [{"topic": TOPIC, "partition": p} for p in range(PARTITIONS)]
        body = {"partitions": partitions}
        answer = self.until("GET", f"{path}/offsets", headers=JSON_V2, content=_json(body))
        offsets = {one["partition"]: one["offset"] for one in answer.json().get("offsets", [])}
        seek = [{**one, "offset": offsets.get(one["partition"], 0)} for one in partitions]
        self.until("POST", f"{path}/positions", headers=JSON_V2, json={"offsets": seek})


class Listener(Client):
    """A listener of server-sent events, which reconnects at the next gateway."""

    def __init__(self, gateways: Gateways, name: str) -> None:
        super().__init__(gateways, name)
        self.seen: Counter[tuple[int, int]] = Counter()
        self._newest: dict[int, int] = {}
        self.last = ""

    def work(self) -> None:
        """Listen until the end."""
        while not self.finishing.is_set():
            headers = {"accept": "text/event-stream"} | ({"last-event-id": self.last} if self.last else {})
            url = f"{self.gateways.next()}/api/v1/topics/{TOPIC}/records?from=earliest"
            try:
                with self.http.stream(
                    "GET", url, headers=headers, timeout=httpx.Timeout(5, read=1)
                ) as answer:
                    if answer.status_code == 200:
                        self._listen(answer)
                    elif answer.status_code not in RETRIABLE:
                        self.problems.append(f"{self.name}: {answer.status_code} {answer.read()!r}")
                        return
            except httpx.TransportError:
                pass
            time.sleep(0.02)

    def _listen(self, answer: httpx.Response) -> None:
        event: dict[str, str] = {}
        for line in answer.iter_lines():
            if line:
                name, _, value = line.partition(":")
                event[name] = value.removeprefix(" ")
                continue
            if event.get("event", "message") in ("message", "record") and "data" in event:
                self._take(_parsed(event["data"]))
            # The id belongs to what came before it: a client remembers it only with a whole event.
            self.last = event.get("id", self.last)
            event = {}
            if self.finishing.is_set():
                return

    def _take(self, record: dict[str, Any]) -> None:
        if "offset" not in record:
            return
        partition, offset = record["partition"], record["offset"]
        if offset <= self._newest.get(partition, -1):
            self.problems.append(f"{self.name}: {partition}/{offset} after {self._newest[partition]}")
        self._newest[partition] = offset
        self.seen[partition, offset] += 1


class Unaffected(Client):
    """Uses gateways that no fault touches: nothing may fail there."""

    def __init__(self, gateways: Gateways, name: str) -> None:
        super().__init__(gateways, name)
        self.spared: set[str] = set()
        self.done = 0

    def work(self) -> None:
        """Write and read at the spared gateways, and use groups that they own."""
        groups = {n: next(g for g in map(str, range(999)) if _owner(g) == n) for n in NAMES}
        while not self.finishing.is_set():
            spared = set(self.spared)
            for name in sorted(spared):
                base = self.gateways.by_name[name].http
                requests = [("POST", "/api/v1/topics/unaffected/records"), ("GET", f"/api/v1/topics/{TOPIC}")]
                requests += [("GET", f"/api/v1/groups/{groups[other]}/consumers") for other in spared]
                for method, path in requests:
                    self._send(spared, method, base, path)
            time.sleep(0.01)

    def _send(self, spared: set[str], method: str, base: str, path: str) -> None:
        body = {"content": b"x"} if method == "POST" else {}
        try:
            answer = self.http.request(method, base + path, **body)  # type: ignore[arg-type]
            wrong = "" if answer.is_success else f"{answer.status_code} {answer.text}"
        except httpx.TransportError as error:
            wrong = repr(error)
        self.done += not wrong
        # A fault may have begun meanwhile; then the request was not spared.
        if wrong and spared <= self.spared:
            self.problems.append(f"unaffected {method} {base}{path}: {wrong}")


def _owner(group: str) -> str:
    return owner_of(NAMES, b"group " + group.encode())


def _json(body: object) -> bytes:
    import json

    return json.dumps(body).encode()


def _parsed(text: str) -> dict[str, Any]:
    import json

    found: dict[str, Any] = json.loads(text)
    return found


@contextmanager
def _running(clients: list[Client]) -> Iterator[None]:
    for one in clients:
        one.start()
    yield
    writers = [one for one in clients if isinstance(one, (Writer, Unaffected))]
    others = [one for one in clients if one not in writers and not isinstance(one, Listener)]
    for group in (writers, others):
        for one in group:
            one.finishing.set()
        _join(group)


def _join(clients: list[Client]) -> None:
    deadline = time.monotonic() + FINISH_SECONDS
    for one in clients:
        one.join(max(0.0, deadline - time.monotonic()))
        if one.is_alive():
            one.problems.append(f"{one.name} did not end within {FINISH_SECONDS} s")


def gateway_loop(directory: Path, rounds: int, seed: int) -> str:
    """Run the loop; return a line about it. Raises AssertionError for every promise that was not kept."""
    chosen = random.Random(seed)
    gateways = Gateways(directory)
    try:
        body = {"partitions": PARTITIONS}
        httpx.put(
            f"{gateways.cluster.http}/api/v1/topics/{TOPIC}", json=body, trust_env=False
        ).raise_for_status()
        writers = [Writer(gateways, f"writer{n}") for n in range(2)]
        managed = [Managed(gateways, f"managed{n}") for n in range(3)]
        old = [OldConsumer(gateways, f"old{n}") for n in range(2)]
        listeners = [Listener(gateways, f"listener{n}") for n in range(2)]
        unaffected = Unaffected(gateways, "unaffected")
        clients: list[Client] = [*writers, *managed, *old, *listeners, unaffected]
        faults: Counter[str] = Counter()
        with _running(clients):
            for number in range(rounds):
                faults[_fault(gateways, unaffected, chosen, kill=number % 2 == 0)] += 1
        log = _log(gateways.cluster)
        _wait(lambda: all(set(log) <= set(one.seen) for one in listeners))
        for one in listeners:
            one.finishing.set()
        _join(list(listeners))
        problems = [problem for one in clients for problem in one.problems]
        problems += _check(log, writers, managed, old, listeners)
        shown = sorted(problems, key=lambda problem: " has not " in problem)
        assert not problems, "\n".join(shown[:50])
        acknowledged = sum(len(one.acknowledged) for one in writers)
        done = f"{len(log)} records, {unaffected.done} unaffected requests"
        return f"{dict(faults)}, {acknowledged} keyed writes, {done}"
    finally:
        gateways.stop()


def _fault(gateways: Gateways, unaffected: Unaffected, chosen: random.Random, *, kill: bool) -> str:
    """Kill a gateway or stop it in order, and start it again after a while."""
    victim = chosen.choice(NAMES)
    unaffected.spared = set(NAMES) - {victim}
    time.sleep(chosen.uniform(0.3, 1.5))
    one = gateways.by_name[victim]
    if kill:
        one.kill()
    else:
        assert one.stop() == 0, one.read_log()
    time.sleep(chosen.uniform(0.0, 1.0))
    one.start()
    time.sleep(chosen.uniform(0.3, 1.0))
    unaffected.spared = set()
    return "killed" if kill else "stopped"


def _wait(check: Callable[[], bool]) -> None:
    deadline = time.monotonic() + FINISH_SECONDS
    while not check() and time.monotonic() < deadline:
        time.sleep(0.1)


def _log(cluster: BrokerProcess) -> dict[tuple[int, int], str]:
    """Every record of the topic as the cluster itself has it."""
    found: dict[tuple[int, int], str] = {}
    with httpx.Client(base_url=cluster.http, timeout=60, trust_env=False) as http:
        for partition in range(PARTITIONS):
            offset, at_end = 0, False
            while not at_end:
                path = f"/api/v1/topics/{TOPIC}/partitions/{partition}/records?offset={offset}"
                answer = http.get(path).raise_for_status().json()
                found |= {(partition, r["offset"]): r["value"] for r in answer["records"]}
                offset, at_end = answer["next_offset"], answer["caught_up"]
    return found


def _check(
    log: dict[tuple[int, int], str],
    writers: list[Writer],
    managed: list[Managed],
    old: list[OldConsumer],
    listeners: list[Listener],
) -> list[str]:
    problems = []
    for value, count in Counter(log.values()).items():
        if count > 1:
            problems.append(f"{value} is in the log {count} times")
    for writer in writers:
        for value, place in writer.acknowledged.items():
            if log.get(place) != value:
                problems.append(f"{value} was acknowledged at {place}; there is {log.get(place)!r}")
    for consumer in managed:
        problems += [
            f"{consumer.name} has not acknowledged {p}" for p in log if p not in consumer.acknowledged
        ]
        again = [place for place, count in consumer.acknowledged.items() if count > 1]
        problems += [f"{consumer.name} got {place} again after its acknowledgement" for place in again]
    for reader in old:
        problems += [f"{reader.name} has not read {place}" for place in log if place not in reader.read]
    for listener in listeners:
        problems += [f"{listener.name} has not got {place}" for place in log if place not in listener.seen]
    return problems
