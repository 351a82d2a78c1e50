"""A client in a process of its own, which takes one JSON command a line and answers one line, in order.

For clients of another language, and for releases of a library that the tests' own process has in another one.
Bytes cross the pipe in base64. The answer is {"result": …} or {"error": {"code": …, "message": …}}; a client that
tells Kafka's errors by their names gives the "name" in place of the "code".
"""

from __future__ import annotations

import base64
import json
import os
import queue
import subprocess
import threading
from collections.abc import Sequence
from typing import Any

from core.errors import ErrorCode
from tests.broker_process import BrokerProcess
from tests.clients.driver import CALL_SECONDS, Driver, GroupSeen, Message, RefusedError


class ChildDriver(Driver):
    """One process for all calls of a test file."""

    def __init__(self, broker: BrokerProcess) -> None:
        super().__init__(broker)
        command, environment = self.program()
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, **environment}
        )
        self._lines: queue.Queue[bytes] = queue.Queue()
        self._reader = threading.Thread(target=self._read_lines, daemon=True)
        self._reader.start()

    def program(self) -> tuple[list[str], dict[str, str]]:
        """The command that starts the client, and what its environment has beside ours."""
        raise NotImplementedError

    def _read_lines(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(b"")

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.close()
            self._process.wait(CALL_SECONDS)
        finally:
            self._process.kill()
            self._process.wait()
            self._reader.join()
            self._process.stdout.close()

    def call(self, verb: str, **arguments: Any) -> Any:
        """Send a command and wait for its answer; raises RefusedError."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"verb": verb, **arguments}).encode() + b"\n")
        self._process.stdin.flush()
        line = self._lines.get(timeout=CALL_SECONDS)
        assert line, f"the process of {self.name} has stopped"
        answer = json.loads(line)
        if "error" in answer:
            error = answer["error"]
            code = ErrorCode.__members__.get(error["name"]) if "name" in error else error.get("code")
            raise RefusedError(code if isinstance(code, int) else None, error["message"])
        return answer["result"]

    def write(self, topic: str, partition: int, messages: Sequence[Message], codec: str = "none") -> None:
        shown = [
            {
                "key": to_text(message.key),
                "value": to_text(message.value),
                "headers": [[name, to_text(value)] for name, value in message.headers],
                "timestamp": message.timestamp,
            }
            for message in messages
        ]
        self.call("write", topic=topic, partition=partition, messages=shown, codec=codec)

    def read(self, topic: str, partition: int, offset: int, count: int) -> list[Message]:
        found = self.call("read", topic=topic, partition=partition, offset=offset, count=count)
        return [
            Message(
                to_bytes(message["key"]),
                to_bytes(message["value"]),
                tuple((name, to_bytes(value)) for name, value in message["headers"]),
                int(message["timestamp"]),
                int(message["offset"]),
            )
            for message in found
        ]


class AdminChild(ChildDriver):
    """A client in another process that has the calls of an admin client too, under verbs of the same names."""

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

    def groups(self) -> list[str]:
        return list(self.call("groups"))

    def describe_group(self, group: str, topic: str) -> GroupSeen:
        found = self.call("describe_group", group=group, topic=topic)
        return GroupSeen(found["state"], sorted(sorted(owned) for owned in found["members"].values()))

    def group_offsets(self, group: str, topic: str) -> dict[int, int]:
        found = self.call("group_offsets", group=group, topic=topic)
        return {int(partition): int(offset) for partition, offset in found.items()}

    def delete_group(self, group: str) -> None:
        self.call("delete_group", group=group)


def to_text(data: bytes | None) -> str | None:
    """Bytes for the pipe."""
    return None if data is None else base64.b64encode(data).decode()


def to_bytes(text: str | None) -> bytes | None:
    """Bytes from the pipe."""
    return None if text is None else base64.b64decode(text)
