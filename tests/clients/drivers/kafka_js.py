"""kafkajs on Node: a child process that takes one JSON command a line and answers one line."""

from __future__ import annotations

from pathlib import Path

from tests.clients.drivers.child import ChildDriver, to_text
from tests.conftest import NODE_MODULES, node_path

SCRIPT = Path(__file__).with_name("kafka_js.js")


class KafkaJs(ChildDriver):
    """One Node process for all calls."""

    name = "kafkajs"
    installed_as = "kafkajs"
    codecs = ("none", "gzip", "snappy", "lz4", "zstd")
    writes_null_headers = False

    def program(self) -> tuple[list[str], dict[str, str]]:
        node = node_path()
        assert node is not None
        environment = {"NODE_PATH": str(NODE_MODULES), "KAFKAJS_NO_PARTITIONER_WARNING": "1"}
        return [node, str(SCRIPT), self.broker.kafka], environment

    def choose_partition(self, topic: str, key: bytes) -> int:
        return int(self.call("choose", topic=topic, key=to_text(key)))

    def offset_for_time(self, topic: str, partition: int, timestamp: int) -> int | None:
        found = int(self.call("offset_for_time", topic=topic, partition=partition, timestamp=timestamp))
        return found if found >= 0 else None

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        low, high = self.call("bounds", topic=topic, partition=partition)
        return int(low), int(high)

    def create_topic(self, name: str, partitions: int, configs: dict[str, str] | None = None) -> None:
        self.call("create_topic", topic=name, partitions=partitions, configs=configs or {})

    def topics(self) -> dict[str, int]:
        return dict(self.call("topics"))

    def add_partitions(self, name: str, total: int) -> None:
        self.call("add_partitions", topic=name, total=total)

    def configs(self, name: str) -> dict[str, str | None]:
        return dict(self.call("configs", topic=name))

    def set_config(self, name: str, key: str, value: str) -> None:
        self.call("set_config", topic=name, key=key, value=value)

    def delete_records(self, name: str, partition: int, before: int) -> int:
        self.call("delete_records", topic=name, partition=partition, before=before)
        return self.bounds(name, partition)[0]

    def delete_topic(self, name: str) -> None:
        self.call("delete_topic", topic=name)
