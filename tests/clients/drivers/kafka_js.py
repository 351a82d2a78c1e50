"""kafkajs on Node: a child process that takes one JSON command a line and answers one line."""

from __future__ import annotations

import base64
import json
import os
import queue
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.broker_process import BrokerProcess
from tests.clients.driver import CALL_SECONDS, Driver, Message, RefusedError
from tests.conftest import NODE_MODULES, node_path

SCRIPT = Path(__file__).with_name("kafka_js.js")


class KafkaJs(Driver):
    """One Node process for all calls. Bytes cross the pipe in base64."""

    name = "kafkajs"
    codecs = ("none", "gzip", "snappy", "lz4", "zstd")
    writes_null_headers = False

    def __init__(self, broker: BrokerProcess) -> None:
        super().__init__(broker)
        node = node_path()
        assert node is not None
        self._process = subprocess.Popen(
            [node, str(SCRIPT), broker.kafka],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "NODE_PATH": str(NODE_MODULES), "KAFKAJS_NO_PARTITIONER_WARNING": "1"},
        )
        self._lines: queue.Queue[bytes] = queue.Queue()
        self._reader = threading.Thread(target=self._read_lines, daemon=True)
        self._reader.start()

    def _read_lines(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(b"")

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(CALL_SECONDS)
        finally:
            self._process.kill()
            self._process.wait()
            self._reader.join()
            self._process.stdout.close()

    def _call(self, verb: str, **arguments: Any) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"verb": verb, **arguments}).encode() + b"\n")
        self._process.stdin.flush()
        line = self._lines.get(timeout=CALL_SECONDS)
        assert line, "the Node process has stopped"
        answer = json.loads(line)
        if "error" in answer:
            code = answer["error"].get("code")
            raise RefusedError(code if isinstance(code, int) else None, answer["error"]["message"])
        return answer["result"]

    def write(self, topic: str, partition: int, messages: Sequence[Message], codec: str = "none") -> None:
        shown = [
            {
                "key": _text(message.key),
                "value": _text(message.value),
                "headers": [[name, _text(value)] for name, value in message.headers],
                "timestamp": message.timestamp,
            }
            for message in messages
        ]
        self._call("write", topic=topic, partition=partition, messages=shown, codec=codec)

    def choose_partition(self, topic: str, key: bytes) -> int:
        return int(self._call("choose", topic=topic, key=_text(key)))

    def read(self, topic: str, partition: int, offset: int, count: int) -> list[Message]:
        found = self._call("read", topic=topic, partition=partition, offset=offset, count=count)
        return [
            Message(
                _bytes(message["key"]),
                _bytes(message["value"]),
                tuple((name, _bytes(value)) for name, value in message["headers"]),
                int(message["timestamp"]),
                int(message["offset"]),
            )
            for message in found
        ]

    def offset_for_time(self, topic: str, partition: int, timestamp: int) -> int | None:
        found = int(self._call("offset_for_time", topic=topic, partition=partition, timestamp=timestamp))
        return found if found >= 0 else None

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        low, high = self._call("bounds", topic=topic, partition=partition)
        return int(low), int(high)

    def create_topic(self, name: str, partitions: int, configs: dict[str, str] | None = None) -> None:
        self._call("create_topic", topic=name, partitions=partitions, configs=configs or {})

    def topics(self) -> dict[str, int]:
        return dict(self._call("topics"))

    def add_partitions(self, name: str, total: int) -> None:
        self._call("add_partitions", topic=name, total=total)

    def configs(self, name: str) -> dict[str, str | None]:
        return dict(self._call("configs", topic=name))

    def set_config(self, name: str, key: str, value: str) -> None:
        self._call("set_config", topic=name, key=key, value=value)

    def delete_records(self, name: str, partition: int, before: int) -> int:
        self._call("delete_records", topic=name, partition=partition, before=before)
        return self.bounds(name, partition)[0]

    def delete_topic(self, name: str) -> None:
        self._call("delete_topic", topic=name)


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
