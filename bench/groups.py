"""Groups: heartbeats, commits, many groups at once, one large group, and a start with all of that."""

from __future__ import annotations

import asyncio
import struct
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench import floors
from bench.case import Figure, case, least_of, median_of
from bench.load import WINDOW, Connection, framed
from bench.server import CORES, measured_cpu, resident_bytes
from bench.size import seconds_to_first_answer
from core.protocol.codec import decode_response
from core.protocol.header import decode_response_header
from core.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from core.protocol.messages.heartbeat import HeartbeatRequest
from core.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from core.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from core.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from core.protocol.schema import Message
from tests.broker_process import BrokerProcess

MICRO = 1e6
KIB = 1024
COMMIT, JOIN, HEARTBEAT, SYNC, DESCRIBE = 8, 11, 12, 14, 15
COMMIT_VERSION, JOIN_VERSION, HEARTBEAT_VERSION, SYNC_VERSION, DESCRIBE_VERSION = 8, 3, 4, 3, 0
PARTITIONS = 10
# Requests of a member in a round, and about how many bytes each has.
ROUND, ASKED = 2, 200
# Committers that share one fsync, each with a connection of its own.
COMMITTERS = 100
# The initial delay is for people's groups; here it would be all there is to measure.
NO_DELAY = {"SLUICE_GROUP_INITIAL_REBALANCE_DELAY_MS": "0"}
METADATA = b"\0\1\0\0\0\1\0\5bench\xff\xff\xff\xff\0\0\0\0"


@contextmanager
def broker_without_delay() -> Iterator[BrokerProcess]:
    """A broker over an empty directory whose groups do not wait for more members at first."""
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as directory:
        process = BrokerProcess(Path(directory) / "data", environment=NO_DELAY)
        try:
            yield process.start()
        finally:
            process.kill()


class Member:
    """One connection that speaks for members, one request at a time."""

    def __init__(self) -> None:
        self.member_id = ""

    async def open(self, address: tuple[str, int]) -> Member:
        """Connect."""
        self._reader, self._writer = await asyncio.open_connection(*address)
        return self

    def close(self) -> None:
        """Disconnect without leaving."""
        self._writer.close()

    async def ask(self, key: int, version: int, request: Message) -> object:
        """One request and its answer."""
        self._writer.write(framed(key, version, request))
        (size,) = struct.unpack(">i", await self._reader.readexactly(4))
        answer = await self._reader.readexactly(size)
        _, position = decode_response_header(key, version, answer)
        return decode_response(key, version, answer, position)

    async def join(self, group: str, member_id: str = "") -> JoinGroupResponse:
        """Join, and wait for the round."""
        protocols = [JoinGroupRequestProtocol("range", METADATA)]
        request = JoinGroupRequest(group, 60_000, 60_000, member_id, None, "consumer", protocols)
        answer = await self.ask(JOIN, JOIN_VERSION, request)
        assert isinstance(answer, JoinGroupResponse) and answer.error_code == 0, answer
        return answer

    async def sees(self, group: str, state: str, members: int) -> bool:
        """Return whether a group has that state and that number of members."""
        answer = await self.ask(DESCRIBE, DESCRIBE_VERSION, DescribeGroupsRequest([group]))
        assert isinstance(answer, DescribeGroupsResponse)
        (found,) = answer.groups
        return found.group_state == state and len(found.members) == members

    async def sync(self, group: str, joined: JoinGroupResponse) -> None:
        """Bring the assignments or wait for them."""
        given = [SyncGroupRequestAssignment(m.member_id, METADATA) for m in joined.members]
        request = SyncGroupRequest(group, joined.generation_id, joined.member_id, assignments=given)
        answer = await self.ask(SYNC, SYNC_VERSION, request)
        assert isinstance(answer, SyncGroupResponse) and answer.error_code == 0, answer


async def rebalance(group: str, members: list[Member], ids: list[str], watch: Member) -> list[str]:
    """One round of a group whose leader is the first of `ids`; the ids in the new generation, leader first.

    Members without an id are new and come first: the round ends when all that are known have joined again. In a
    group without new ones the leader comes first: its join is what starts the round. `watch` sees when.
    """
    early = [n for n, member_id in enumerate(ids) if member_id == ""] or [0]
    late = [n for n in range(len(ids)) if n not in early]
    joins = {n: asyncio.ensure_future(members[n].join(group, ids[n])) for n in early}
    while not await watch.sees(group, "PreparingRebalance", len(ids)):
        await asyncio.sleep(0)
    joins |= {n: asyncio.ensure_future(members[n].join(group, ids[n])) for n in late}
    joined = [await joins[n] for n in range(len(ids))]
    await asyncio.gather(*(m.sync(group, one) for m, one in zip(members, joined, strict=True)))
    return [one.member_id for one in joined]


def stable_member(connection: Connection, group: str) -> tuple[str, int]:
    """A member alone in its group: its id and generation."""
    protocols = [JoinGroupRequestProtocol("range", METADATA)]
    request = JoinGroupRequest(group, 300_000, 300_000, "", None, "consumer", protocols)
    joined = connection.call(JOIN, JOIN_VERSION, request)
    assert joined.error_code == 0, joined
    given = [SyncGroupRequestAssignment(joined.member_id, METADATA)]
    sync = SyncGroupRequest(group, joined.generation_id, joined.member_id, assignments=given)
    assert connection.call(SYNC, SYNC_VERSION, sync).error_code == 0
    return joined.member_id, joined.generation_id


def commit_frame(group: str, member_id: str, generation: int) -> bytes:
    """A commit of ten partitions."""
    partitions = [OffsetCommitRequestPartition(p, 12_345, -1, -1, "") for p in range(PARTITIONS)]
    topics = [OffsetCommitRequestTopic("bench", partitions=partitions)]
    request = OffsetCommitRequest(group, generation, member_id, topics=topics)
    return framed(COMMIT, COMMIT_VERSION, request)


@case
def heartbeat(repeats: int) -> list[Figure]:
    """Heartbeats of a member, five on their way."""
    with broker_without_delay() as server:
        connection = Connection(server.kafka_address)
        member_id, generation = stable_member(connection, "bench")
        request = framed(HEARTBEAT, HEARTBEAT_VERSION, HeartbeatRequest("bench", generation, member_id))
        connection.socket.sendall(request)
        answer_size = 4 + len(connection.receive())
        samples = []
        with CORES.together(server.pid):
            for _ in range(repeats):
                with measured_cpu(server) as used:
                    connection.stream([request] * 5000, answer_size)
                samples.append(used[0] / 5000 * MICRO)
    return [least_of("heartbeat", samples, "µs/request", 15, floors.echo_us(len(request), WINDOW))]


@case
def commit(repeats: int) -> list[Figure]:
    """Durable commits of ten partitions, by a hundred consumers at once."""
    rounds, cpu, rate = 40, [], []
    with broker_without_delay() as server:
        first = Connection(server.kafka_address)
        first.create_topic("bench", PARTITIONS)
        committers = []
        for number in range(COMMITTERS):
            connection = Connection(server.kafka_address)
            member_id, generation = stable_member(connection, f"group-{number}")
            committers.append((connection, commit_frame(f"group-{number}", member_id, generation)))
        for _ in range(repeats):
            begin = time.monotonic()
            with measured_cpu(server) as used:
                for _ in range(rounds):
                    for connection, frame in committers:
                        connection.socket.sendall(frame)
                    for connection, _ in committers:
                        connection.receive()
            commits = rounds * COMMITTERS
            cpu.append(used[0] / commits * MICRO)
            rate.append(commits * PARTITIONS / (time.monotonic() - begin))
    return [
        least_of("commit of 10 partitions, durable", cpu, "µs/request", 60, floors.echo_us(len(frame))),
        Figure(
            "committed offsets, 100 consumers (at least 20,000)", max(rate), "offsets/s", None, 20_000, rate
        ),
    ]


@case
def many_groups(repeats: int) -> list[Figure]:
    """A thousand groups of three members: a rebalance of each, and what a member takes of memory."""
    return asyncio.run(_many_groups(min(repeats, 3)))


async def _many_groups(repeats: int) -> list[Figure]:
    groups, lanes = 1000, 10
    with broker_without_delay() as server:
        before = resident_bytes(server.pid)
        crews = [[await Member().open(server.kafka_address) for _ in range(4)] for _ in range(lanes)]
        ids: dict[str, list[str]] = {}

        async def lane(number: int, *, form: bool) -> None:
            *crew, watch = crews[number]
            for n in range(number, groups, lanes):
                group = f"group-{n}"
                if form:
                    leader = await crew[0].join(group)
                    await crew[0].sync(group, leader)
                    ids[group] = [leader.member_id, "", ""]
                ids[group] = await rebalance(group, crew, ids[group], watch)

        await asyncio.gather(*(lane(number, form=True) for number in range(lanes)))
        memory = (resident_bytes(server.pid) - before) / (3 * groups) / KIB
        samples = []
        for _ in range(repeats):
            begin = time.monotonic()
            await asyncio.gather(*(lane(number, form=False) for number in range(lanes)))
            samples.append(time.monotonic() - begin)
    floor = groups * 3 * ROUND * floors.echo_us(ASKED) / MICRO
    return [
        median_of("a rebalance of each of 1,000 groups of 3", samples, "s", 10, floor),
        Figure("memory of one member, broker and all", memory, "KiB", 10),
    ]


@case
def large_group(repeats: int) -> list[Figure]:
    """Five hundred members join one group, each over its own connection."""
    return asyncio.run(_large_group(min(repeats, 5)))


async def _large_group(repeats: int) -> list[Figure]:
    samples = []
    with broker_without_delay() as server:
        members = [await Member().open(server.kafka_address) for _ in range(500)]
        watch = await Member().open(server.kafka_address)
        for number in range(repeats):
            group = f"group-{number}"
            leader = await members[0].join(group)
            await members[0].sync(group, leader)
            begin = time.monotonic()
            await rebalance(group, members, [leader.member_id] + [""] * 499, watch)
            samples.append(time.monotonic() - begin)
    return [
        median_of("500 members join and sync", samples, "s", 2, 500 * ROUND * floors.echo_us(ASKED) / MICRO)
    ]


@case
def groups_start(repeats: int) -> list[Figure]:
    """Start with 10,000 groups and 100,000 committed offsets."""
    samples = []
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as directory:
        server = BrokerProcess(Path(directory) / "data").start()
        connection = Connection(server.kafka_address)
        connection.create_topic("bench", PARTITIONS)
        for start in range(0, 10_000, COMMITTERS):
            for n in range(start, start + COMMITTERS):
                connection.socket.sendall(commit_frame(f"group-{n}", "", -1))
            for _ in range(COMMITTERS):
                connection.receive()
        server.stop()
        for _ in range(min(repeats, 5)):
            samples.append(seconds_to_first_answer(server))
            server.stop()
    return [median_of("start with 10,000 groups, 100,000 offsets", samples, "s", 2, floors.bare_start())]
