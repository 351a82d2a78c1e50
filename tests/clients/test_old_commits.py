"""Positions that old consumers commit: into the group, and before 0.8.2 into a register of its own as well."""

from __future__ import annotations

import uuid

import httpx
import pytest

from tests.broker_process import BrokerProcess
from tests.clients.drivers.old_kafka_python import OLD_KAFKA_PYTHON, OldKafkaPython
from tests.clients.every_client import GetClient, case
from tests.clients.wire import Wire

INTO_ZOOKEEPER = [driver for driver in OLD_KAFKA_PYTHON if driver.name.endswith("as-0.8.1")]
INTO_KAFKA = [d for d in OLD_KAFKA_PYTHON if d.name.endswith(("as-0.8.2", "as-0.9", "as-0.10", "as-0.11.0"))]
TOPIC = "positions"


@pytest.fixture(scope="module", autouse=True)
def _topic(broker: BrokerProcess) -> None:
    with Wire(broker.kafka_address) as wire:
        wire.create_topic(TOPIC, partitions=2)
        wire.write(TOPIC, *"abcdefgh", partition=1)


def _shown(broker: BrokerProcess, group: str) -> list[tuple[int, int, str]]:
    answer = httpx.get(f"{broker.http}/api/v1/groups/{group}/offsets", trust_env=False)
    offsets = answer.json()["offsets"] if answer.is_success else []
    return [(one["partition"], one["next_offset"], one["metadata"]) for one in offsets]


def _set_by_hand(broker: BrokerProcess, group: str, offset: int) -> None:
    position = {"topic": TOPIC, "partition": 1, "next_offset": offset}
    url = f"{broker.http}/api/v1/groups/{group}/offsets"
    httpx.patch(url, json={"offsets": [position]}, trust_env=False).raise_for_status()


def _client(client: GetClient, driver: type[OldKafkaPython]) -> OldKafkaPython:
    found = client(driver)
    assert isinstance(found, OldKafkaPython)
    return found


@pytest.mark.parametrize("driver", [case(driver) for driver in INTO_KAFKA])
def test_a_position_committed_by_an_old_client_is_the_group_s(
    client: GetClient, broker: BrokerProcess, driver: type[OldKafkaPython]
) -> None:
    group, one = f"group-{uuid.uuid4().hex[:8]}", _client(client, driver)
    assert one.committed(group, TOPIC, 1) is None
    one.commit(group, TOPIC, 1, 5, "half way")
    assert one.committed(group, TOPIC, 1) == 5
    assert _shown(broker, group) == [(1, 5, "half way")]
    _set_by_hand(broker, group, 3)
    assert one.committed(group, TOPIC, 1) == 3


@pytest.mark.parametrize("driver", [case(driver) for driver in INTO_ZOOKEEPER])
def test_a_client_of_0_8_1_keeps_its_position_when_the_group_continues(
    client: GetClient, broker: BrokerProcess, driver: type[OldKafkaPython]
) -> None:
    group, one, later = (
        f"group-{uuid.uuid4().hex[:8]}",
        _client(client, driver),
        _client(client, INTO_KAFKA[0]),
    )
    assert one.committed(group, TOPIC, 1) is None
    one.commit(group, TOPIC, 1, 5, "")
    assert (one.committed(group, TOPIC, 1), later.committed(group, TOPIC, 1)) == (5, 5)
    assert _shown(broker, group) == [(1, 5, "")]
    later.commit(group, TOPIC, 1, 6, "")
    assert (one.committed(group, TOPIC, 1), later.committed(group, TOPIC, 1)) == (5, 6)
    _set_by_hand(broker, group, 3)
    assert (one.committed(group, TOPIC, 1), later.committed(group, TOPIC, 1)) == (3, 3)
