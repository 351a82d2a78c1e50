"""A wall clock that jumps a day ahead or back, or strobes, under a whole broker in virtual time (R9).

Sessions, polls, managed consumers, idempotency keys and retention hang on time that has passed, not on what the clock
on the wall says.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from core.config import Config, Endpoint
from core.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from core.protocol.messages.heartbeat import HeartbeatRequest
from core.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from core.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from core.protocol.messages.sync_group import SyncGroupRequest
from tests.clients.wire import batch, produce_request
from tests.simulation.loop import SimLoop
from tests.simulation.machine import HTTP_PORT, START_MS, Machine
from tests.simulation.streams import HttpStream, KafkaStream
from tests.simulation.world import KAFKA_PORT

PRODUCE, LIST_OFFSETS, JOIN, HEARTBEAT, SYNC, CREATE_TOPICS = 0, 2, 11, 12, 14, 19
DAY_MS, STROBE_MS = 86_400_000, 500
SESSION_MS = 10_000
RECORDS = 30
# Half an hour of virtual time under each clock: longer than anything that expires here, shorter than the hour after
# which a step that lasts is believed to be right.
STEPS, STEP_SECONDS = 600, 3.0
ONCE = {"Idempotency-Key": "pay-1"}


class Scene:
    """A broker, a member, a managed consumer and a topic that keeps its records for two hours."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.kafka = KafkaStream(machine.network, KAFKA_PORT)
        self.http = HttpStream(machine.network, HTTP_PORT)
        self.member_id = ""

    async def _web(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        status, answer = await self.http.call(method, f"/api/v1{path}", body, headers or None)
        assert status in (200, 201), (status, answer)
        return answer

    async def begin(self) -> None:
        """Everything is made."""
        configs = [
            CreatableTopicConfig("segment.bytes", "300"),
            CreatableTopicConfig("retention.ms", "7200000"),
        ]
        topic = CreatableTopic(name="kept", num_partitions=1, replication_factor=1, configs=configs)
        await self.kafka.call(CREATE_TOPICS, 7, CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
        for number in range(RECORDS):
            records = batch([b"%d" % number * 20], now_ms=START_MS)
            answer = await self.kafka.call(PRODUCE, 9, produce_request("kept", records))
            assert answer.responses[0].partition_responses[0].error_code == 0
        await self._web("POST", "/topics/kept/records", {"value": "once"}, **ONCE)
        made = {"name": "one", "topics": ["kept"], "start": "earliest", "ttl_ms": 60_000}
        await self._web("POST", "/groups/managed/consumers", made)
        await self._join()

    async def _join(self) -> None:
        protocol = JoinGroupRequestProtocol(name="mine", metadata=b"")
        request = JoinGroupRequest(
            group_id="g", session_timeout_ms=SESSION_MS, rebalance_timeout_ms=SESSION_MS, member_id="",
            protocol_type="any", protocols=[protocol],
        )  # fmt: skip
        joined = await self.kafka.call(JOIN, 2, request)
        assert joined.error_code == 0
        self.member_id, self.generation = joined.member_id, joined.generation_id
        sync = SyncGroupRequest(
            group_id="g", generation_id=self.generation, member_id=self.member_id, assignments=[]
        )
        assert (await self.kafka.call(SYNC, 1, sync)).error_code == 0

    async def alive(self) -> None:
        """The member's session continues, in its generation."""
        request = HeartbeatRequest(group_id="g", generation_id=self.generation, member_id=self.member_id)
        assert (await self.kafka.call(HEARTBEAT, 1, request)).error_code == 0

    async def everything(self) -> None:
        """Nothing was taken away, and a wait lasts as long as it should."""
        asked = ListOffsetsTopic("kept", [ListOffsetsPartition(partition_index=0, timestamp=-2)])
        found = await self.kafka.call(LIST_OFFSETS, 7, ListOffsetsRequest(replica_id=-1, topics=[asked]))
        assert found.topics[0].partitions[0].offset == 0
        again = await self._web("POST", "/topics/kept/records", {"value": "once"}, **ONCE)
        assert again["records"][0]["offset"] == RECORDS
        begun = self.machine.loop.now
        page = await self._web("GET", f"/topics/kept/partitions/0/records?offset={RECORDS + 1}&wait_ms=2000")
        assert page["records"] == [] and 2.0 <= self.machine.loop.now - begun < 3.0
        group = await self._web("GET", "/groups/managed")
        assert [one["name"] for one in group["consumers"]] == ["one"], group


async def live(loop: SimLoop, data_dir: Path, shift_ms: int, strobe: bool) -> None:
    config = Config(
        data_dir=data_dir,
        listeners=(Endpoint("http", "127.0.0.1", HTTP_PORT), Endpoint("kafka", "127.0.0.1", KAFKA_PORT)),
    )
    machine = Machine(loop, 1, config, lambda text: None)
    try:
        await machine.start()
        scene = Scene(machine)
        await scene.begin()
        machine.wall_shift_ms = machine.clock.wall_shift_ms = shift_ms
        for step in range(STEPS):
            await asyncio.sleep(STEP_SECONDS)
            if strobe:
                machine.clock.wall_shift_ms = shift_ms + (STROBE_MS if step % 2 else -STROBE_MS)
            await scene.alive()
            if step % 10 == 0:
                await scene._web("POST", "/groups/managed/consumers/one:poll", {"wait_ms": 0})
            if step % 100 == 0:
                await scene.everything()
        machine.wall_shift_ms = machine.clock.wall_shift_ms = 0
        await scene.everything()
        await machine.stop()
    finally:
        machine.restore()


@pytest.mark.parametrize(
    ("shift_ms", "strobe"), [(DAY_MS, False), (-DAY_MS, False), (0, True)], ids=["ahead", "back", "strobe"]
)
def test_a_clock_that_jumps_ends_no_session_and_takes_no_record(
    tmp_path: Path, shift_ms: int, strobe: bool
) -> None:
    loop = SimLoop()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(live(loop, tmp_path / "data", shift_ms, strobe))
