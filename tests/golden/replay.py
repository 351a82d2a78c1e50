"""Golden traffic sent to a broker of ours, row after row, and its answers in a form that can be compared.

Equal means equal in every field. What differs from run to run by nature is put aside: the ids of members, the
order of listed groups, and how compressed messages are compressed (what is in them is compared, and by which codec).
"""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path
from typing import Any

from core.broker.broker import Broker
from core.clock import ManualClock
from core.config import Config, Endpoint
from core.errors import BrokerError
from core.listeners.kafka.dispatch import HANDLERS
from core.listeners.kafka.listener import KafkaListener
from core.protocol.codec import decode_response
from core.protocol.primitives import ProtocolError
from core.records.message_set import parse_message_set
from tests.core.listeners.kafka.conftest import Client
from tests.golden.traffic import Row

FETCH, LIST_GROUPS, API_VERSIONS = 1, 16, 18
MEMBER_ID = re.compile(rb"cap-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


class Replay:
    """One client of a broker. Members have Kafka's ids in what is compared, and ours in what is sent."""

    def __init__(self, listener: KafkaListener, ids: dict[bytes, bytes] | None = None) -> None:
        self.listener = listener
        self.client = Client(listener)
        # Kafka's member ids → ours.
        self.ids: dict[bytes, bytes] = {} if ids is None else ids

    def ours(self, data: bytes) -> bytes:
        """Bytes of the file with our ids of members."""
        return MEMBER_ID.sub(lambda found: self.ids.get(found[0], found[0]), data)

    def learn(self, theirs: bytes, answer: bytes) -> None:
        """Take the ids of new members from an answer."""
        for old, new in zip(MEMBER_ID.findall(theirs), MEMBER_ID.findall(answer), strict=False):
            self.ids.setdefault(old, new)

    async def send(self, row: Row) -> bytes | None:
        """Send a row; the answer, with its correlation id. Topics that it makes are there afterwards."""
        answer = await self.client.raw(self.ours(row.request))
        while self.listener.tasks:
            await asyncio.gather(*self.listener.tasks)
        return answer

    def same(self, row: Row, answer: bytes | None) -> bool:
        """Whether an answer is Kafka's."""
        if row.response is None or answer is None:
            return row.response is answer
        self.learn(row.response, answer)
        expected = self.ours(row.response)
        try:
            return answer == expected or comparable(row, answer) == comparable(row, expected)
        except ProtocolError:
            return False


async def open_listener(directory: Path, port: int) -> KafkaListener:
    """A listener of a fresh broker with Kafka's number, address and time of the capture."""
    config = Config(data_dir=directory, broker_id=1, group_initial_rebalance_delay_ms=0)
    broker = Broker(config, ManualClock())
    await broker.open()
    listener = KafkaListener(broker, HANDLERS)
    listener.bound(Endpoint("kafka", "127.0.0.1", port))
    return listener


def written_at(directory: Path, time_ms: int) -> None:
    """Make the segments of a broker as old as those of the capture: ListOffsets v0 uses the times of their files."""
    for file in directory.rglob("*.log"):
        os.utime(file, (time_ms / 1000, time_ms / 1000))


def comparable(row: Row, answer: bytes) -> Any:
    """An answer without what differs by nature."""
    # Kafka 1.0.0 knew ApiVersions 0 and 1, and answers everything above as version 0.
    version = 0 if row.key == API_VERSIONS and row.version > 1 else row.version
    body: Any = decode_response(row.key, version, answer, 4)
    if row.key == FETCH:
        partition = body.responses[0].partitions[0]
        partition.records = _opened(bytes(partition.records))
    if row.key == LIST_GROUPS:
        body.groups.sort(key=lambda group: group.group_id)
    return answer[:4], body


def _opened(records: bytes) -> Any:
    try:
        return parse_message_set(records, max_bytes=1_000_000)
    except BrokerError:  # cut in the middle
        return records
