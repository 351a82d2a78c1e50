"""A gateway over a real Apache Kafka 4.1 of three nodes: leaders and coordinators die, the ISR shrinks and grows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from confluent_kafka.admin import AdminClient

from tests.gateway_process import GatewayProcess
from tests.peers.nodes import Nodes

API = "/api/v1"
SECONDS = 90.0


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """Three nodes of Kafka for this file."""
    made = Nodes(tmp_path_factory.mktemp("nodes"))
    try:
        yield made.start()
    finally:
        made.close()


@pytest.fixture(scope="module")
def gateway(nodes: Nodes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """A gateway over them; its log must hold no traceback in the end."""
    process = GatewayProcess(tmp_path_factory.mktemp("gateway") / "data", nodes.bootstrap)
    try:
        yield process.start()
        died = not process.running
    finally:
        process.kill()
    log = process.read_log()
    assert not died and "Traceback" not in log, f"the gateway failed:\n{log[-20_000:]}"


@pytest.fixture
def http(gateway: GatewayProcess) -> Iterator[httpx.Client]:
    """An HTTP client of the gateway."""
    with httpx.Client(base_url=gateway.http, timeout=120, trust_env=False) as client:
        yield client


def until(what: str, condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.1)
    raise AssertionError(f"not within {SECONDS:.0f} s: {what}")


def isr(nodes: Nodes, topic: str) -> tuple[int, list[int]]:
    """The leader and the in-sync replicas of partition 0."""
    admin = AdminClient({"bootstrap.servers": nodes.bootstrap, "log_level": 0})
    one = admin.list_topics(topic, timeout=30).topics[topic].partitions[0]
    return one.leader, sorted(one.isrs)


def make(http: httpx.Client, topic: str, **configs: str) -> None:
    settings = {key.replace("_", "."): value for key, value in configs.items()}
    made = http.put(
        f"{API}/topics/{topic}", json={"partitions": 1, "replication_factor": 3, "configs": settings}
    )
    assert made.status_code == 201, made.text


def write(http: httpx.Client, topic: str, value: str, key: str = "") -> httpx.Response:
    headers = {"idempotency-key": f'"{key}"'} if key else {}
    return http.post(f"{API}/topics/{topic}/records", json={"records": [{"value": value}]}, headers=headers)


def offset(answer: httpx.Response) -> int:
    assert answer.status_code == 200, answer.text
    found: int = answer.json()["records"][0]["offset"]
    return found


def read_all(http: httpx.Client, topic: str) -> dict[int, str]:
    found: dict[int, str] = {}
    at = 0
    while True:
        page = http.get(f"{API}/topics/{topic}/partitions/0/records?offset={at}&limit=1000")
        assert page.status_code == 200, page.text
        body = page.json()
        found |= {one["offset"]: one["value"] for one in body["records"]}
        at = body["next_offset"]
        if body["caught_up"]:
            return found


def test_the_leader_is_killed_under_writes(nodes: Nodes, http: httpx.Client) -> None:
    topic = "leader-dies"
    make(http, topic, min_insync_replicas="2")
    until("all replicas are in sync", lambda: len(isr(nodes, topic)[1]) == 3)
    leader, _ = isr(nodes, topic)
    told: dict[str, int] = {}
    for number in range(60):
        if number == 20:
            nodes.kill(leader)
        value = f"v{number}"
        answer = until(
            "a write is answered",
            lambda v=value: (a := write(http, topic, v, key=v)).status_code == 200 and a,
        )
        told[value] = offset(answer)
    assert isr(nodes, topic)[0] != leader
    found = read_all(http, topic)
    assert {value: at for at, value in found.items()} == told and len(found) == 60
    assert [found[at] for at in sorted(found)] == [f"v{number}" for number in range(60)]
    nodes.restart(leader)
    until("the node is in sync again", lambda: len(isr(nodes, topic)[1]) == 3)


def test_too_few_replicas_in_sync_refuse_a_write_and_its_retry_writes_once(
    nodes: Nodes, http: httpx.Client
) -> None:
    topic = "min-isr"
    make(http, topic, min_insync_replicas="3")
    until("all replicas are in sync", lambda: len(isr(nodes, topic)[1]) == 3)
    assert offset(write(http, topic, "before")) == 0
    leader, _ = isr(nodes, topic)
    victim = next(number for number in nodes.up if number != leader)
    nodes.kill(victim)
    until("the ISR shrinks", lambda: len(isr(nodes, topic)[1]) == 2)
    refused = write(http, topic, "keyed", key="k")
    assert refused.status_code == 503 and refused.json()["retriable"] is True, refused.text
    assert "NOT_ENOUGH_REPLICAS" in refused.json()["kafka_error"]
    nodes.restart(victim)
    until("the ISR grows", lambda: len(isr(nodes, topic)[1]) == 3)
    assert offset(until("the retry is taken", lambda: _taken(write(http, topic, "keyed", key="k")))) >= 1
    assert list(read_all(http, topic).values()) == ["before", "keyed"]


def _taken(answer: httpx.Response) -> httpx.Response | None:
    return answer if answer.status_code == 200 else None


def test_the_coordinator_of_a_managed_consumer_is_killed(nodes: Nodes, http: httpx.Client) -> None:
    topic, group = "coordinator-dies", "coordinated"
    make(http, topic)
    for number in range(10):
        offset(
            until("a write is answered", lambda n=number: _taken(write(http, topic, f"v{n}", key=f"v{n}")))
        )
    url = f"{API}/groups/{group}/consumers"
    made = http.post(url, json={"name": "c", "topics": [topic]})
    assert made.status_code == 201, made.text
    first = http.post(f"{url}/c:poll", json={"limit": 4, "wait_ms": 30_000})
    assert first.status_code == 200 and first.json()["records"], first.text
    admin = AdminClient({"bootstrap.servers": nodes.bootstrap, "log_level": 0})
    described = admin.describe_consumer_groups([group])[group].result(30)
    coordinator = described.coordinator.id
    nodes.kill(coordinator)
    seen = [one["value"] for one in first.json()["records"]]
    ack: str | None = first.json()["ack"]
    deadline = time.monotonic() + SECONDS
    while len(seen) < 10 and time.monotonic() < deadline:
        answer = http.post(f"{url}/c:poll", json={"limit": 4, "wait_ms": 5_000, "ack": ack})
        if answer.status_code == 503:
            time.sleep(0.5)
            continue
        assert answer.status_code == 200, answer.text
        batch = answer.json()
        seen += [one["value"] for one in batch["records"] if not batch["redelivered"]]
        ack = batch["ack"]
    assert seen == [f"v{number}" for number in range(10)]
    nodes.restart(coordinator)
