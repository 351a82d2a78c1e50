"""kafka-node 5 on Node: a client of 2015 to 2019 that ends at Kafka 0.10."""

from __future__ import annotations

from pathlib import Path

from tests.clients.driver import Message
from tests.clients.drivers.child import ChildDriver
from tests.conftest import NODE_MODULES, kafka_node_path

SCRIPT = Path(__file__).with_name("kafka_node.js")


class KafkaNode(ChildDriver):
    """One Node process for all calls."""

    name = "kafka-node"
    installed_as = "kafka-node"
    message_format = 1
    codecs = ("none", "gzip", "snappy")
    # It takes an lz4 wrapper for a message.
    reads_codecs = ("none", "gzip", "snappy", "zstd")

    def program(self) -> tuple[list[str], dict[str, str]]:
        node = kafka_node_path()
        assert node is not None
        return [node, str(SCRIPT), self.broker.kafka], {"NODE_PATH": str(NODE_MODULES)}

    @classmethod
    def sees(cls, message: Message) -> Message:
        """Its plain consumer says Fetch v0 whatever the broker offers; only its group consumer says v2."""
        return message._replace(headers=(), timestamp=-1)

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        low, high = self.call("bounds", topic=topic, partition=partition)
        return int(low), int(high)

    def topics(self) -> dict[str, int]:
        return dict(self.call("topics"))
