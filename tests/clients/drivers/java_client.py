"""Kafka's own Java client at three releases: a JVM each, which takes JSON commands as JavaClient.java says."""

from __future__ import annotations

from typing import Any

from tests.clients.driver import Driver
from tests.clients.drivers.child import ChildDriver, to_text
from tests.peers.kafka import java

#: The name of a client → the set of jars in tests/peers/fetch.py that it runs on.
JAVA_SETS = {"java-4.1": "kafka-4.1", "java-3.9": "kafka-3.9", "java-2.8": "clients-2.8"}


class JavaClient(ChildDriver):
    """One JVM for all calls; the subclasses name the release."""

    installed_as = "kafka"
    codecs = ("none", "gzip", "snappy", "lz4", "zstd")

    def program(self) -> tuple[list[str], dict[str, str]]:
        return java(JAVA_SETS[self.name], "JavaClient", self.broker.kafka, level="off"), {}

    def choose_partition(self, topic: str, key: bytes) -> int:
        return int(self.call("choose", topic=topic, key=to_text(key)))

    def offset_for_time(self, topic: str, partition: int, timestamp: int) -> int | None:
        found = self.call("offset_for_time", topic=topic, partition=partition, timestamp=timestamp)
        return None if found is None else int(found)

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
        return int(self.call("delete_records", topic=name, partition=partition, before=before))

    def delete_topic(self, name: str) -> None:
        self.call("delete_topic", topic=name)

    def groups(self) -> list[str]:
        """Return the ids of all groups."""
        return list(self.call("groups"))

    def group(self, group: str) -> dict[str, Any]:
        """Describe a group: state, assignor, coordinator, members with client_id, host and partitions."""
        return dict(self.call("group", group=group))

    def group_offsets(self, group: str) -> dict[str, tuple[int, str]]:
        """Return what a group has committed: `topic-partition` → offset and metadata."""
        found = self.call("group_offsets", group=group)
        return {name: (int(offset), str(metadata)) for name, (offset, metadata) in found.items()}


def _release(name: str) -> type[Driver]:
    return type("JavaClient", (JavaClient,), {"__doc__": f"Kafka's Java client, {name}.", "name": name})


JAVA: tuple[type[Driver], ...] = tuple(_release(name) for name in JAVA_SETS)
