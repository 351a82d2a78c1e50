"""kafka-python 1.4.7 and 2.0.2, pinned to the broker versions that they still know how to talk to.

Each release lies in a directory of its own (`.cache/kafka-python-2.0.2`, put there by tests/run.py): the tests'
own process has kafka-python 3.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.clients.driver import Driver
from tests.clients.drivers.child import ChildDriver, to_text
from tests.conftest import OLD_KAFKA_PYTHONS, old_kafka_python_path

SCRIPT = Path(__file__).with_name("old_kafka_python_child.py")


class OldKafkaPython(ChildDriver):
    """One process for all calls; the subclasses name release and api_version."""

    release = ""
    api_version = ""
    installed_as = "old kafka-python"
    writes_null_headers = False

    def program(self) -> tuple[list[str], dict[str, str]]:
        path = old_kafka_python_path(self.release)
        assert path is not None
        return [sys.executable, str(SCRIPT), self.broker.kafka, self.api_version], {"PYTHONPATH": path}

    def choose_partition(self, topic: str, key: bytes) -> int:
        return int(self.call("choose", topic=topic, key=to_text(key)))

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        low, high = self.call("bounds", topic=topic, partition=partition)
        return int(low), int(high)

    def topics(self) -> dict[str, int]:
        return dict(self.call("topics"))

    def commit(self, group: str, topic: str, partition: int, offset: int, metadata: str) -> None:
        """Commit as a consumer with partitions of its own choice does, without a group to join."""
        self.call("commit", group=group, topic=topic, partition=partition, offset=offset, metadata=metadata)

    def committed(self, group: str, topic: str, partition: int) -> int | None:
        """What was committed, to this or any other client's knowledge."""
        found = self.call("committed", group=group, topic=topic, partition=partition)
        return None if found is None else int(found)


class OldKafkaPythonWithTimes(OldKafkaPython):
    """From 0.10.1 on, offsets can be asked for by time."""

    def offset_for_time(self, topic: str, partition: int, timestamp: int) -> int | None:
        found = self.call("offset_for_time", topic=topic, partition=partition, timestamp=timestamp)
        return None if found is None else int(found)


# api_version: the message format that its Produce and Fetch carry, and the codecs that the client allows.
_PINS = {
    "0.8.0": (0, ("none", "gzip", "snappy")),
    "0.8.1": (0, ("none", "gzip", "snappy")),
    "0.8.2": (0, ("none", "gzip", "snappy", "lz4")),
    "0.9": (0, ("none", "gzip", "snappy", "lz4")),
    "0.10": (1, ("none", "gzip", "snappy", "lz4")),
    "0.10.1": (1, ("none", "gzip", "snappy", "lz4")),
    "0.11.0": (2, ("none", "gzip", "snappy", "lz4")),
}
_WITH_TIMES = ("0.10.1", "0.11.0")


def _pinned(release: str, api_version: str) -> type[Driver]:
    kind = OldKafkaPythonWithTimes if api_version in _WITH_TIMES else OldKafkaPython
    message_format, codecs = _PINS[api_version]
    return type(
        "OldKafkaPython",
        (kind,),
        {
            "__doc__": f"kafka-python {release} with api_version {api_version}.",
            "name": f"kafka-python-{release}-as-{api_version}",
            "release": release,
            "api_version": api_version,
            "message_format": message_format,
            "sets_timestamps": message_format > 0,
            "codecs": codecs,
            # 1.4.7 asks for the length of a header's value, whatever it is.
            "reads_null_headers": release != "1.4.7",
            "writes_null": api_version != "0.8.0",
        },
    )


OLD_KAFKA_PYTHON: tuple[type[Driver], ...] = tuple(
    _pinned(release, api_version) for release in OLD_KAFKA_PYTHONS for api_version in _PINS
)
