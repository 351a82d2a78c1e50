"""Real share consumers (KIP-932): the Java client of Kafka 4.1 and 4.4, librdkafka, franz-go; curl."""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from core.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    RequestGroup,
)
from core.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.broker_process import BrokerProcess
from tests.clients.driver import CALL_SECONDS
from tests.clients.share.share_member import INSTALLED_AS, KINDS, NEWEST, ShareMember
from tests.clients.wire import Wire

GROUP_CONFIG = 32
RECORDS = 60
Start = Callable[..., ShareMember]


def _kind(kind: str) -> Any:
    return pytest.param(kind, marks=[pytest.mark.client(INSTALLED_AS[kind])] if kind in INSTALLED_AS else [])


EVERY_KIND = [_kind(kind) for kind in KINDS]
EVERY_NEW_KIND = [_kind(kind) for kind in NEWEST]


@pytest.fixture
def name(wire: Wire) -> str:
    """A group and a topic of this test's own, with 60 records; the group begins at their start."""
    name = f"jobs-{uuid.uuid4().hex[:8]}"
    wire.create_topic(name, 3)
    for number in range(RECORDS):
        wire.write(name, f"v{number}", partition=number % 3)
    configure(wire, name, "share.auto.offset.reset", "earliest")
    return name


def configure(wire: Wire, group: str, config: str, value: str) -> None:
    resource = AlterConfigsResource(GROUP_CONFIG, group, [AlterableConfig(config, 0, value)])
    assert wire.call(44, IncrementalAlterConfigsRequest([resource]), 1).responses[0].error_code == 0


@pytest.fixture
def start(broker: BrokerProcess, name: str) -> Iterator[Start]:
    """Starts a member: kind, mode, max_records."""
    members: list[ShareMember] = []

    def begin(kind: str, mode: str = "accept", max_records: int | None = None) -> ShareMember:
        members.append(ShareMember(kind, broker, name, name, mode, max_records))
        return members[-1]

    yield begin
    for member in members:
        member.kill()


def unsettled(wire: Wire, group: str) -> int:
    """Return how many records of a group are not settled."""
    (found,) = wire.call(90, DescribeShareGroupOffsetsRequest([RequestGroup(group, None)]), 1).groups
    return sum(partition.lag for topic in found.topics for partition in topic.partitions)


def _accepted(http: httpx.Client, queue: str, lease: str) -> bool:
    return http.post(f"{queue}:settle", json={"accept": [lease]}).status_code == 200


def until(seen: Callable[[], object], expected: object) -> None:
    """Wait until something is as expected."""
    deadline = time.monotonic() + 2 * CALL_SECONDS
    while (found := seen()) != expected:
        assert time.monotonic() < deadline, f"{found}, not {expected}"
        time.sleep(0.05)


def values(*members: ShareMember) -> list[str]:
    return sorted(read.value for member in members for read in member.reads)


ALL = sorted(f"v{number}" for number in range(RECORDS))


@pytest.mark.parametrize("kind", EVERY_KIND)
@pytest.mark.parametrize("mode", ["implicit", "accept", "reject"])
def test_a_member_gets_each_record_once(kind: str, mode: str, name: str, start: Start, wire: Wire) -> None:
    member = start(kind, mode)
    member.wait_for(lambda one: len(one.reads) >= RECORDS)
    until(lambda: unsettled(wire, name), 0)
    member.leave()
    assert values(member) == ALL
    assert {read.deliveries for read in member.reads} == {1}
    assert member.refused == []


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_a_released_record_comes_again(kind: str, name: str, start: Start, wire: Wire) -> None:
    member = start(kind, "release")
    member.wait_for(lambda one: len(one.reads) >= 2 * RECORDS)
    until(lambda: unsettled(wire, name), 0)
    member.leave()
    assert Counter(read.deliveries for read in member.reads) == {1: RECORDS, 2: RECORDS}
    assert sorted(read.value for read in member.reads if read.deliveries == 2) == ALL


@pytest.mark.parametrize("kind", EVERY_NEW_KIND)
def test_a_lock_is_renewed(kind: str, name: str, start: Start, wire: Wire) -> None:
    member = start(kind, "renew")
    member.wait_for(lambda one: {read.value for read in one.reads} == set(ALL))
    until(lambda: unsettled(wire, name), 0)
    member.leave()
    assert member.refused == []
    # Java hands a renewed record out again, which is no delivery.
    assert {read.deliveries for read in member.reads} == {1}


@pytest.mark.parametrize("kind", EVERY_NEW_KIND)
def test_a_poll_has_a_strict_limit_of_records(kind: str, name: str, start: Start, wire: Wire) -> None:
    wire.create_topic(f"{name}-x")
    member = start(kind, "accept", 7)
    member.wait_for(lambda one: len(one.reads) >= RECORDS)
    until(lambda: unsettled(wire, name), 0)
    member.leave()
    assert max(member.polled) <= 7
    assert values(member) == ALL


def test_members_of_all_kinds_share_partitions_and_records(name: str, start: Start, wire: Wire) -> None:
    members = [start(kind, "accept") for kind in ("confluent-kafka", "franz-go", "java-4.4")]
    for member in members:
        member.wait_for(lambda one: one.acknowledged > 0 or unsettled(wire, name) == 0)
    for number in range(RECORDS, 10 * RECORDS):
        wire.write(name, f"v{number}", partition=number % 3)
    until(lambda: len({read.value for member in members for read in member.reads}), 10 * RECORDS)
    until(lambda: unsettled(wire, name), 0)
    for member in members:
        member.leave()
    assert len(values(*members)) == 10 * RECORDS
    assert all(member.refused == [] for member in members)


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_what_a_killed_member_held_comes_to_another(kind: str, name: str, start: Start, wire: Wire) -> None:
    # It reads, and does not poll again: with the explicit mode nothing is settled.
    first = start(kind, "implicit")
    first.wait_for(lambda one: len(one.reads) > 0)
    first.pause()
    first.kill()
    second = start("confluent-kafka", "accept")
    second.wait_for(lambda _: unsettled(wire, name) == 0)
    second.leave()
    assert {read.value for read in (*first.reads, *second.reads)} == set(ALL)


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_a_member_and_curl_draw_from_one_queue(
    kind: str, name: str, start: Start, wire: Wire, broker: BrokerProcess
) -> None:
    member = start(kind, "accept")
    member.wait_for(lambda one: len(one.reads) >= RECORDS)
    got: Counter[str] = Counter()
    queue = f"{broker.http}/api/v1/queues/{name}"
    with httpx.Client(timeout=60, trust_env=False) as http:
        for number in range(RECORDS, 4 * RECORDS):
            wire.write(name, f"v{number}", partition=number % 3)
            if number % 3 == 0:
                answer = http.post(f"{queue}:receive", json={"max": 2, "wait_ms": 0}).json()
                if answer["records"]:
                    got.update(record["value"] for record in answer["records"])
                    assert _accepted(http, queue, answer["lease"])
    until(lambda: len(got) + len(member.reads), 4 * RECORDS)
    until(lambda: unsettled(wire, name), 0)
    member.leave()
    got.update(read.value for read in member.reads)
    assert set(got.values()) == {1}
    assert len(got) == 4 * RECORDS


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_a_member_survives_a_restart_of_the_broker(
    kind: str, name: str, start: Start, wire: Wire, broker: BrokerProcess
) -> None:
    member = start(kind, "accept")
    member.wait_for(lambda one: len(one.reads) >= RECORDS)
    until(lambda: unsettled(wire, name), 0)
    broker.kill()
    broker.start()
    with Wire(broker.kafka_address) as again:
        again.write(name, "after", partition=1)
    # It has lost its membership with the broker, and joins again.
    member.wait_for(lambda one: one.reads[-1].value == "after")
    assert len(member.reads) == RECORDS + 1
    member.leave()
