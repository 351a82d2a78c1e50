"""Groups as the admin calls of real clients show them, while members read, when one is killed, and at the end."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator

import pytest

from core.errors import ErrorCode
from tests.broker_process import BrokerProcess
from tests.clients.driver import CALL_SECONDS, Driver, GroupSeen, RefusedError
from tests.clients.drivers.go import KafkaGo
from tests.clients.every_client import GetClient, able
from tests.clients.members.member import KAFKA_GO, Member
from tests.clients.wire import Wire

BROKER_ENVIRONMENT = {
    "SLUICE_GROUP_INITIAL_REBALANCE_DELAY_MS": "100",
    "SLUICE_GROUP_MIN_SESSION_TIMEOUT_MS": "1000",
}
PARTITIONS = 4
ADMINS = able("groups", "describe_group", "group_offsets", "delete_group")


@pytest.fixture
def group() -> str:
    """A group, and a topic, of this test's own."""
    return f"g-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def join(broker: BrokerProcess, group: str, driver: type[Driver]) -> Iterator[Callable[[], Member]]:
    """Starts a member of the group that reads the topic of the same name.

    It is on librdkafka, but for kafka-go, which cannot decode what librdkafka joins with.
    """
    kind = KAFKA_GO if driver is KafkaGo else "confluent-kafka"
    members: list[Member] = []

    def start() -> Member:
        members.append(Member(kind, broker, group, group))
        return members[-1]

    yield start
    for member in members:
        if member.running:
            member.kill()


def _until(seen: Callable[[], object], expected: object) -> None:
    """Wait until a client sees what is expected."""
    deadline = time.monotonic() + CALL_SECONDS
    while (found := seen()) != expected:
        assert time.monotonic() < deadline, f"{found}, not {expected}"
        time.sleep(0.05)


@pytest.mark.parametrize("driver", ADMINS)
def test_a_group_is_listed_described_and_deleted(
    client: GetClient, wire: Wire, driver: type[Driver], group: str, join: Callable[[], Member]
) -> None:
    admin = client(driver)
    wire.create_topic(group, partitions=PARTITIONS)
    assert group not in admin.groups()
    one, other = join(), join()
    _until(lambda: group in admin.groups(), True)
    _until(lambda: admin.describe_group(group, group), GroupSeen("Stable", [[0, 2], [1, 3]]))
    for number in range(9):
        wire.write(group, str(number), partition=number % 3)
    _until(lambda: admin.group_offsets(group, group), {0: 3, 1: 3, 2: 3})
    with pytest.raises(RefusedError) as refused:
        admin.delete_group(group)
    assert refused.value.code == ErrorCode.NON_EMPTY_GROUP
    other.kill()
    _until(lambda: admin.describe_group(group, group), GroupSeen("Stable", [[0, 1, 2, 3]]))
    one.leave()
    _until(lambda: admin.describe_group(group, group), GroupSeen("Empty", []))
    assert admin.group_offsets(group, group) == {0: 3, 1: 3, 2: 3}
    admin.delete_group(group)
    assert group not in admin.groups()
    assert admin.group_offsets(group, group) == {}


@pytest.mark.parametrize("driver", ADMINS)
def test_a_group_that_is_not_there_cannot_be_deleted(
    client: GetClient, driver: type[Driver], group: str
) -> None:
    with pytest.raises(RefusedError) as refused:
        client(driver).delete_group(group)
    assert refused.value.code == ErrorCode.GROUP_ID_NOT_FOUND
