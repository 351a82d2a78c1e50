"""The npm clients of Kafka 0.7 on Node: `kafka` 0.2.3 for magic 0, `prozess` 0.7.0 for magic 1.

Offsets are byte addresses. A PRODUCE of 0.7 has no answer, so `write` returns once the broker has the messages.
"""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.clients.driver import CALL_SECONDS, Message
from tests.clients.drivers.child import ChildDriver, to_bytes
from tests.conftest import NODE_MODULES, kafka07_path

SCRIPT = Path(__file__).with_name("kafka07.js")
#: What a broker for both must listen on; see `BrokerProcess`.
SCHEMES = ("kafka07?magic=0", "kafka07?magic=1")


class Kafka07Driver(ChildDriver):
    """One Node process for all calls."""

    installed_as = "kafka 0.7"
    message_format = 0
    sets_timestamps = False
    writes_null = False
    #: Its message format as 0.7 counts them.
    magic = 1

    def program(self) -> tuple[list[str], dict[str, str]]:
        node = kafka07_path()
        assert node is not None
        host, port = self.broker.kafka07_address(self.magic)
        environment = {"NODE_PATH": str(NODE_MODULES), "NODE_NO_WARNINGS": "1"}
        return [node, str(SCRIPT), self.name, host, str(port)], environment

    @classmethod
    def sees(cls, message: Message) -> Message:
        """Values alone; null is empty."""
        return Message(None, message.value or b"", (), -1)

    def write(self, topic: str, partition: int, messages: Sequence[Message], codec: str = "none") -> None:
        before = self._end(topic, partition)
        super().write(topic, partition, messages, codec)
        deadline = time.monotonic() + CALL_SECONDS
        while self._end(topic, partition) < before + len(messages):
            assert time.monotonic() < deadline, "the messages do not arrive"
            time.sleep(0.01)

    def _end(self, topic: str, partition: int) -> int:
        """The log end offset, as the HTTP listener tells it; 0 if there is no such topic yet."""
        try:
            with urllib.request.urlopen(f"{self.broker.http}/api/v1/topics/{topic}") as answer:
                return int(json.load(answer)["partition_details"][partition]["latest"])
        except urllib.error.HTTPError as error:
            with error:
                assert error.code == 404
            return 0

    def read(self, topic: str, partition: int, offset: int, count: int, size: int = 1 << 20) -> list[Message]:
        """From the byte address `offset` on; each message has the address after it as its offset, if known."""
        found: list[dict[str, Any]] = self.call(
            "read", topic=topic, partition=partition, offset=offset, count=count, size=size
        )
        return [Message(None, to_bytes(one["value"]), (), -1, one.get("next", -1)) for one in found]


class NpmKafka(Kafka07Driver):
    """`kafka` 0.2.3: ASCII text, byte addresses below 64 KB (it packs larger ones wrongly), no message of no bytes
    at the end of a chunk."""

    name = "kafka"
    magic = 0
    binary_safe = False
    writes_empty = False


class Prozess(Kafka07Driver):
    """`prozess` 0.7.0."""

    name = "prozess"

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        """The first address and the next one."""
        low, high = self.call("bounds", topic=topic, partition=partition)
        return int(low), int(high)
