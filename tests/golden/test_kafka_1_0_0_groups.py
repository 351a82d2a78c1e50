"""The group cases of Kafka 1.0.0, replayed against a broker in the order in which they were sent.

Equal means equal bytes, but for what differs by nature: member ids, the port, the order of listed groups. One
answer is better than it was, on purpose: the first FindCoordinator finds its coordinator at once, where Kafka
was still making its offsets topic.
"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from core.broker.broker import Broker
from core.clock import ManualClock
from core.config import Config, Endpoint
from core.listeners.kafka.door import KafkaDoor
from core.protocol.codec import decode_response
from core.protocol.messages.list_groups import ListGroupsResponse
from tests.core.listeners.kafka.conftest import Client
from tests.golden.traffic import Row, rows

GROUP_APIS = range(8, 17)
# In the order of their correlation ids: the file has them in the order of their answers.
ROWS = sorted(
    (row for row in rows("kafka-1.0.0.json") if row.key in GROUP_APIS), key=lambda row: row.request[4:8]
)
MEMBER_ID = re.compile(rb"cap-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
COORDINATOR_NOT_AVAILABLE = b"\x00\x0f"


class Replay:
    """Sends rows as they were, but for the ids of members, and keeps what comes back in Kafka's own ids."""

    def __init__(self, client: Client, door: KafkaDoor) -> None:
        self.client = client
        self.door = door
        # Kafka's member ids → ours.
        self.ids: dict[bytes, bytes] = {}

    def ours(self, data: bytes) -> bytes:
        return MEMBER_ID.sub(lambda found: self.ids.get(found[0], found[0]), data)

    def learn(self, theirs: bytes, answer: bytes) -> None:
        for old, new in zip(MEMBER_ID.findall(theirs), MEMBER_ID.findall(answer), strict=False):
            self.ids.setdefault(old, new)

    async def send(self, row: Row) -> bytes:
        answer = await self.client.raw(self.ours(row.request))
        assert answer is not None
        return answer


@pytest.mark.asyncio
async def test_every_group_case_is_answered_as_kafka_1_0_0_answered_it(tmp_path: Path) -> None:
    assert len(ROWS) == 40
    broker = Broker(Config(data_dir=tmp_path, group_initial_rebalance_delay_ms=0), ManualClock())
    await broker.open()
    try:
        await broker.create_topic("cap")
        door = KafkaDoor(broker)
        door.bound(Endpoint("kafka", "127.0.0.1", 19100))
        different = await replay(door)
    finally:
        await broker.close()
    assert different == []


async def replay(door: KafkaDoor) -> list[str]:
    replay = Replay(Client(door), door)
    waiting: list[tuple[Row, asyncio.Task[bytes]]] = []
    different = []
    for row in ROWS:
        if "waits for the first" in row.name:
            other = Replay(Client(door), door)
            other.ids = replay.ids
            waiting.append((row, asyncio.get_running_loop().create_task(other.send(row))))
            await asyncio.sleep(0.01)
            view = door.broker.groups.describe("cg")
            assert view is not None and row.response is not None
            # The second member's id is not known from an answer yet; the next rows show it.
            replay.ids[MEMBER_ID.findall(row.response)[0]] = view.members[-1].member_id.encode()
            continue
        different += compare(replay, row, await replay.send(row))
    for row, task in waiting:
        different += compare(replay, row, await asyncio.wait_for(task, 5))
    return different


def compare(replay: Replay, row: Row, answer: bytes) -> list[str]:
    assert row.response is not None
    replay.learn(row.response, answer)
    expected = replay.ours(row.response)
    if row.key == 10:
        if row.response[4:6] == COORDINATOR_NOT_AVAILABLE:
            return []
        expected = expected[:-4] + (19100).to_bytes(4, "big")
    if row.key == 16:
        return [] if listed(answer) == listed(expected) else [f"{row.name}: {answer.hex()}"]
    if answer == expected:
        return []
    return [f"{row.name}: {answer.hex()} is not {expected.hex()}"]


def listed(answer: bytes) -> list[tuple[str, str]]:
    response = decode_response(16, 0, answer, 4)
    assert isinstance(response, ListGroupsResponse) and response.error_code == 0
    return sorted((group.group_id, group.protocol_type) for group in response.groups)
