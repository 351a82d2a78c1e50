"""A broker killed again and again while it is written to, compacted and shortened: for clients of Kafka 0.7 each
message stays at its byte address, and adding up lengths never leads astray."""

from __future__ import annotations

import json
import random
import socket
import struct
import time
import urllib.request
from pathlib import Path

from core.kafka07.messages import parse_messages
from tests.broker_process import BrokerProcess
from tests.core.kafka07.old_client import fetch, offsets

ROUNDS = 4
TOPICS = {
    "plain": {"segment.bytes": "3000"},
    "short": {"segment.bytes": "2000", "retention.bytes": "9000"},
    "compact": {"segment.bytes": "2000", "cleanup.policy": "compact"},
}
# Everything that runs now and then runs all the time.
ENVIRONMENT = {
    "SLUICE_RETENTION_CHECK_INTERVAL_MS": "50",
    "SLUICE_COMPACTION_INTERVAL_MS": "50",
    "SLUICE_BACKGROUND_INTERVAL_MS": "20",
    "SLUICE_CHECKPOINT_INTERVAL_MS": "100",
    "SLUICE_FILE_DELETE_DELAY_MS": "50",
    "SLUICE_COMPACTION_MIN_DIRTY_RATIO": "0.1",
    "SLUICE_LEGACY_SLICE_BYTES": "2000",
}


class Watcher:
    """Reads a topic through one 0.7 listener and remembers which message stood where."""

    def __init__(self, topic: str, magic: int) -> None:
        self.topic, self.magic = topic, magic
        self.seen: dict[int, bytes] = {}

    def look(self, connection: socket.socket) -> int:
        """Read all that is there; every message that was there before is where it was, or was removed. The end."""
        code, (start,) = _offsets(connection, self.topic, -2, 1)
        assert code == 0
        address, found = start, {}
        while True:
            answer = _ask(connection, fetch(self.topic, address, 700))
            (code,) = struct.unpack_from(">h", answer)
            if code == 1:  # right only where retention was faster, between two fetches too
                refused = address
                code, (address,) = _offsets(connection, self.topic, -2, 1)
                assert code == 0 and address > refused, (self.topic, start, refused, address)
                continue
            assert code == 0, (self.topic, address, code)
            chunk = answer[2:]
            if not chunk:
                break
            position = 0
            while position + 4 <= len(chunk):
                (length,) = struct.unpack_from(">i", chunk, position)
                assert 5 + self.magic <= length < 700, (self.topic, address, position, length)
                if position + 4 + length > len(chunk):
                    break
                message = chunk[position : position + 4 + length]
                parse_messages(message, max_bytes=1 << 20)
                found[address + position] = message
                position += 4 + length
            assert position, "a message larger than a chunk"
            address += position
        for at, message in found.items():
            before = self.seen.get(at)
            assert before in (None, message) or _is_filler(message), (self.topic, at, before, message)
        self.seen.update(found)
        return address


def _is_filler(message: bytes) -> bool:
    return b"value" not in message


def _ask(connection: socket.socket, request: bytes) -> bytes:
    connection.sendall(request)
    data = b""
    while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
        piece = connection.recv(65_536)
        assert piece, "the broker hung up"
        data += piece
    return data[4:]


def _offsets(connection: socket.socket, topic: str, time_ms: int, number: int) -> tuple[int, list[int]]:
    answer = _ask(connection, offsets(topic, time_ms, number))
    code, count = struct.unpack_from(">hi", answer)
    return code, list(struct.unpack_from(f">{count}q", answer, 6))


def _write(broker: BrokerProcess, topic: str, values: list[tuple[str, str | None]]) -> None:
    body = json.dumps({"records": [{"key": key, "value": value} for key, value in values]}).encode()
    request = urllib.request.Request(
        f"{broker.http}/api/v1/topics/{topic}/records", body, {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=20) as answer:
        assert answer.status < 300


def test_addresses_hold_over_kills_retention_and_compaction(tmp_path: Path) -> None:
    rng = random.Random(7)
    schemes = ("kafka07?magic=0", "kafka07?magic=1")
    broker = BrokerProcess(tmp_path / "data", environment=ENVIRONMENT, schemes=schemes).start()
    watchers = [Watcher(topic, magic) for topic in TOPICS for magic in (0, 1)]
    for topic, configs in TOPICS.items():
        request = urllib.request.Request(
            f"{broker.http}/api/v1/topics/{topic}",
            json.dumps({"partitions": 1, "configs": configs}).encode(),
            {"Content-Type": "application/json"},
            method="PUT",
        )
        urllib.request.urlopen(request, timeout=20).close()
    ends = dict.fromkeys(range(len(watchers)), 0)
    try:
        for turn in range(ROUNDS):
            for i in range(25):
                for topic in TOPICS:
                    _write(
                        broker,
                        topic,
                        [(f"k{rng.randrange(9)}", f"value {turn} {i} {'x' * rng.randrange(90)}")],
                    )
                if i == 12 and turn % 2:
                    _look(broker, watchers, ends)
            _look(broker, watchers, ends)
            time.sleep(rng.random() * 0.3)
            broker.kill()
            broker.start()
            _look(broker, watchers, ends)
        compacted = [w for w in watchers if w.topic == "compact"]
        assert len(list(broker.data_dir.glob("compact-0/*.log"))) < 10
        assert any(_is_filler(message) for watcher in compacted for message in watcher.seen.values())
        assert "Traceback" not in broker.read_log()
    finally:
        broker.kill()


def _look(broker: BrokerProcess, watchers: list[Watcher], ends: dict[int, int]) -> None:
    for magic in (0, 1):
        with socket.create_connection(broker.kafka07_address(magic), timeout=20) as connection:
            for number, watcher in enumerate(watchers):
                if watcher.magic == magic:
                    end = watcher.look(connection)
                    assert end >= ends[number], "acknowledged messages are lost"
                    ends[number] = end
