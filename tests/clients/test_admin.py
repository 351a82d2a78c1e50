"""Admin calls of real clients: what each can say does what it says, and a refusal carries Kafka's number."""

from __future__ import annotations

import pytest

from core.errors import ErrorCode
from core.topic_config import DEFINITIONS, described
from tests.clients.driver import Driver, Message, RefusedError, implements
from tests.clients.every_client import DRIVERS, GetClient, able, case
from tests.clients.wire import NOW, Wire


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic name of this test's own."""
    return "".join(c if c.isalnum() else "-" for c in request.node.name)[:120]


@pytest.mark.parametrize("driver", able("create_topic", "topics"))
def test_a_created_topic_is_listed_with_its_partitions(
    client: GetClient, driver: type[Driver], topic: str
) -> None:
    client(driver).create_topic(topic, 3)
    assert client(driver).topics()[topic] == 3


@pytest.mark.parametrize("driver", able("topics"))
def test_every_client_lists_the_same_topics(client: GetClient, wire: Wire, driver: type[Driver]) -> None:
    assert sorted(client(driver).topics()) == sorted(wire.topics())


@pytest.mark.parametrize("driver", able("create_topic"))
def test_a_topic_that_exists_is_refused(client: GetClient, driver: type[Driver], topic: str) -> None:
    client(driver).create_topic(topic, 1)
    with pytest.raises(RefusedError) as refused:
        client(driver).create_topic(topic, 2)
    assert refused.value.code in (None, ErrorCode.TOPIC_ALREADY_EXISTS)


IMPOSSIBLE = {
    "space": ("a topic", 1, {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
    "long": ("x" * 250, 1, {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
    "partitions": ("no-partitions", 0, {}, ErrorCode.INVALID_PARTITIONS),
    "unknown": ("unknown-config", 1, {"no.such.thing": "1"}, ErrorCode.INVALID_CONFIG),
    "bad": ("bad-config", 1, {"retention.ms": "soon"}, ErrorCode.INVALID_CONFIG),
}


@pytest.mark.parametrize(
    ("why", "driver"),
    [
        case(why, driver)
        for why, (_, _, configs, _) in IMPOSSIBLE.items()
        for driver in DRIVERS
        if implements(driver, "create_topic") and (driver.creates_with_configs or not configs)
    ],
)
def test_a_topic_that_cannot_be_is_refused(client: GetClient, why: str, driver: type[Driver]) -> None:
    name, partitions, configs, code = IMPOSSIBLE[why]
    with pytest.raises(RefusedError) as refused:
        client(driver).create_topic(name, partitions, configs)
    assert refused.value.code in (None, code)
    assert name not in client(driver).topics()


@pytest.mark.parametrize("driver", able("create_topic", "add_partitions"))
def test_partitions_can_be_added_but_not_taken_away(
    client: GetClient, driver: type[Driver], topic: str
) -> None:
    client(driver).create_topic(topic, 2)
    client(driver).add_partitions(topic, 5)
    assert client(driver).topics()[topic] == 5
    with pytest.raises(RefusedError) as refused:
        client(driver).add_partitions(topic, 4)
    assert refused.value.code == ErrorCode.INVALID_PARTITIONS
    client(driver).write(topic, 4, [Message(b"k", b"into the new one", (), NOW)])
    assert client(driver).bounds(topic, 4) == (0, 1)


@pytest.mark.parametrize("driver", able("create_topic", "configs", "set_config"))
def test_settings_are_shown_with_their_defaults_and_can_be_changed(
    client: GetClient, driver: type[Driver], topic: str
) -> None:
    client(driver).create_topic(topic, 1, {"retention.ms": "1234000"})
    shown = client(driver).configs(topic)
    assert {one.name for one in described()} <= set(shown)
    assert shown["retention.ms"] == "1234000"
    assert shown["segment.bytes"] == DEFINITIONS["segment.bytes"].default
    client(driver).set_config(topic, "segment.bytes", "2000000")
    assert client(driver).configs(topic)["segment.bytes"] == "2000000"
    with pytest.raises(RefusedError) as refused:
        client(driver).set_config(topic, "cleanup.policy", "burn")
    assert refused.value.code == ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize("driver", able("create_topic", "delete_records", "write", "bounds"))
def test_records_before_an_offset_can_be_deleted(client: GetClient, driver: type[Driver], topic: str) -> None:
    client(driver).create_topic(topic, 1)
    client(driver).write(topic, 0, [Message(None, b"%d" % i, (), NOW) for i in range(10)])
    assert client(driver).delete_records(topic, 0, 4) == 4
    assert client(driver).bounds(topic, 0) == (4, 10)
    assert [message.offset for message in client(driver).read(topic, 0, 4, 6)] == [4, 5, 6, 7, 8, 9]
    assert client(driver).delete_records(topic, 0, -1) == 10
    assert client(driver).bounds(topic, 0) == (10, 10)
    with pytest.raises(RefusedError) as refused:
        client(driver).delete_records(topic, 0, 11)
    assert refused.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("driver", able("create_topic", "delete_topic"))
def test_a_deleted_topic_does_not_exist_and_its_name_is_free(
    client: GetClient, driver: type[Driver], topic: str
) -> None:
    client(driver).create_topic(topic, 1)
    client(driver).write(topic, 0, [Message(None, b"old", (), NOW)])
    client(driver).delete_topic(topic)
    assert topic not in client(driver).topics()
    with pytest.raises(RefusedError) as refused:
        client(driver).delete_topic(topic)
    assert refused.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    client(driver).create_topic(topic, 2)
    assert client(driver).bounds(topic, 0) == (0, 0)
