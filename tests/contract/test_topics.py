"""Topics: create, grow, configure, delete; the same rules at every client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.contract.clients import ClientError, KafkaClient, having

topics = pytest.mark.parametrize("client", having("topics"), indirect=True, ids=lambda d: d.name)
Names = Callable[[], str]


@topics
def test_a_topic_made_over_one_listener_is_there_at_the_others(
    client: Any, kafka: KafkaClient, name: Names
) -> None:
    topic = name()
    client.create_topic(topic, 3, {"retention.ms": "123456"})
    for one in (client, kafka):
        assert one.partitions(topic) == 3
        assert one.config(topic)["retention.ms"] == "123456"
    client.grow(topic, 5)
    assert kafka.partitions(topic) == 5
    client.delete_topic(topic)
    for one in (client, kafka):
        with pytest.raises(ClientError, match="UNKNOWN_TOPIC_OR_PARTITION"):
            one.partitions(topic)


@topics
@pytest.mark.parametrize(
    ("topic", "partitions", "configs", "error"),
    [
        ("sp%20ace", 1, {}, "INVALID_TOPIC_EXCEPTION"),
        ("x" * 250, 1, {}, "INVALID_TOPIC_EXCEPTION"),
        ("good", 2**31 - 1, {}, "INVALID_PARTITIONS"),
        ("good", 1, {"no.such.config": "1"}, "INVALID_CONFIG"),
        ("good", 1, {"retention.ms": "soon"}, "INVALID_CONFIG"),
        ("good", 1, {"cleanup.policy": "shred"}, "INVALID_CONFIG"),
    ],
)
def test_what_one_client_refuses_the_others_refuse(
    client: Any, topic: str, partitions: int, configs: dict[str, str], error: str
) -> None:
    with pytest.raises(ClientError, match=error):
        client.create_topic(topic, partitions, configs)


@topics
def test_a_topic_shrinks_over_no_listener(client: Any, name: Names) -> None:
    topic = name()
    client.create_topic(topic, 3)
    with pytest.raises(ClientError, match="INVALID_PARTITIONS"):
        client.grow(topic, 2)
    with pytest.raises(ClientError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        client.grow(name(), 2)
    with pytest.raises(ClientError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        client.delete_topic(name())
