"""Clients that share partitions in groups: members over the Kafka port, and managed consumers over HTTP."""

from __future__ import annotations

import asyncio
from typing import Any

from core.protocol.consumer_protocol import (
    Assignment,
    Subscription,
    TopicPartitions,
    decode_assignment,
    encode_assignment,
    encode_subscription,
)
from core.protocol.messages.heartbeat import HeartbeatRequest
from core.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from core.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from core.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from core.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.simulation.readers import HTTP_PORT, OFFSET_OUT_OF_RANGE, fetch, values_of
from tests.simulation.streams import GoneError, HttpStream, KafkaStream
from tests.simulation.world import KAFKA_PORT, Client, World

OFFSET_COMMIT, OFFSET_FETCH, JOIN, HEARTBEAT, SYNC = 8, 9, 11, 12, 14
LOADING, UNAVAILABLE, NOT_COORDINATOR, STORAGE_ERROR = 14, 15, 16, 56
ILLEGAL_GENERATION, UNKNOWN_MEMBER, REBALANCING, MEMBER_ID_REQUIRED = 22, 25, 27, 79
AGAIN = {LOADING, UNAVAILABLE, NOT_COORDINATOR, STORAGE_ERROR}
TOPICS = ("idem", "rest")
SESSION_MS, REBALANCE_MS, HEARTBEAT_SECONDS = 10_000, 15_000, 2.0
# A member that was answered so lately cannot have expired, whatever died in between.
SURELY_ALIVE_SECONDS = 6.0


class Member(Client):
    """One member of the group `kafka`: joins, assigns when it leads, fetches, commits."""

    group = "kafka"
    pause = 0.3

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.stream = KafkaStream(world.machine.network, KAFKA_PORT)
        self.member_id = ""
        self.generation = -1
        self.positions: dict[tuple[str, int], int] = {}
        self._heard = -1e9

    async def step(self) -> None:
        """Join if need be; otherwise a heartbeat, a fetch or a commit."""
        if self.chance.random() < 0.02:
            # Long enough, at times, for the others to continue without this member.
            await asyncio.sleep(self.chance.uniform(3, 30))
            if self.generation >= 0 and self.chance.random() < 0.5:
                # A commit is what a member of an old generation must not get through.
                await self._commit()
                return
        if self.generation < 0:
            await self._join()
        elif self.world.loop.now - self._heard > HEARTBEAT_SECONDS and self.chance.random() < 0.7:
            await self._heartbeat()
        elif self.chance.random() < 0.6:
            await self._fetch()
        else:
            await self._commit()

    def _forget(self, code: int) -> None:
        """The broker says that this member's time is over; it may only say so if that can be."""
        if code in AGAIN:
            return
        self.say(f"generation {self.generation} is over ({code})")
        if code == UNKNOWN_MEMBER:
            silent = self.world.loop.now - self._heard
            if silent < SURELY_ALIVE_SECONDS:
                raise self.broken(f"was forgotten {silent:.1f} s after a heartbeat was answered")
            self.member_id = ""
        elif code not in (ILLEGAL_GENERATION, REBALANCING):
            raise self.broken(f"an unexpected refusal: {code}")
        self.generation = -1
        self.positions = {}

    # --- joining -------------------------------------------------------------------------------------------

    async def _join(self) -> None:
        blob = encode_subscription(Subscription(topics=list(TOPICS)), 1)
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="mine", metadata=blob)],
        )
        asked = self.world.loop.now
        answer = await self.stream.call(JOIN, self.chance.randint(2, 9), request, timeout=60)
        if answer.error_code == MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            return
        if answer.error_code == UNKNOWN_MEMBER:
            self.member_id = ""
            return
        if answer.error_code in AGAIN or answer.error_code in (ILLEGAL_GENERATION, REBALANCING):
            return
        if answer.error_code:
            raise self.broken(f"JoinGroup: {answer.error_code}")
        self.member_id, self._heard = answer.member_id, max(asked, self._heard)
        await self._sync(answer)

    async def _sync(self, joined: Any) -> None:
        assignments = []
        if joined.leader == self.member_id:
            members = sorted(one.member_id for one in joined.members)
            everything = [(t, p) for t in TOPICS for p in range(self.world.partitions[t])]
            for index, member in enumerate(members):
                mine = everything[index :: len(members)]
                parts = [TopicPartitions(t, [p for topic, p in mine if topic == t]) for t in TOPICS]
                blob = encode_assignment(Assignment([one for one in parts if one.partitions]), 1)
                assignments.append(SyncGroupRequestAssignment(member_id=member, assignment=blob))
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=joined.generation_id,
            member_id=self.member_id,
            protocol_type="consumer",
            protocol_name="mine",
            assignments=assignments,
        )
        answer = await self.stream.call(SYNC, self.chance.randint(1, 5), request, timeout=60)
        if answer.error_code:
            if answer.error_code == UNKNOWN_MEMBER:
                self.member_id = ""
            return
        mine = decode_assignment(bytes(answer.assignment)).assigned_partitions if answer.assignment else []
        owned = [(one.topic, partition) for one in mine for partition in one.partitions]
        for topic, partition in owned:
            self.ledger.owns(self.group, joined.generation_id, topic, partition, self.member_id)
        self.say(f"generation {joined.generation_id}: {owned}")
        await self._read_positions(owned)
        self.generation = joined.generation_id
        self.did("join")

    async def _read_positions(self, owned: list[tuple[str, int]]) -> None:
        asked = [OffsetFetchRequestTopic(t, [p for topic, p in owned if topic == t]) for t in TOPICS]
        known = {claim: self.ledger.committed.get((self.group, *claim), -1) for claim in owned}
        answer = await self.stream.call(
            OFFSET_FETCH,
            self.chance.randint(1, 7),
            OffsetFetchRequest(group_id=self.group, topics=[one for one in asked if one.partition_indexes]),
        )
        positions = {}
        for topic in answer.topics:
            for one in topic.partitions:
                if one.error_code:
                    raise GoneError(f"OffsetFetch: {one.error_code}")
                claim = (topic.name, one.partition_index)
                self.ledger.check_committed(
                    (self.group, *claim), known[claim], one.committed_offset, self.name
                )
                positions[claim] = max(0, one.committed_offset)
        if set(positions) != set(owned):
            raise self.broken(f"OffsetFetch answered {set(positions)} for {set(owned)}")
        self.positions = positions

    # --- working -------------------------------------------------------------------------------------------

    async def _heartbeat(self) -> None:
        request = HeartbeatRequest(
            group_id=self.group, generation_id=self.generation, member_id=self.member_id
        )
        asked, newest = self.world.loop.now, self.ledger.generations[self.group]
        answer = await self.stream.call(HEARTBEAT, self.chance.randint(0, 4), request)
        if answer.error_code:
            self._forget(answer.error_code)
        else:
            self._heard = asked
            self.ledger.fenced_member_spoke(self.group, self.generation, newest, "a heartbeat")

    async def _fetch(self) -> None:
        if not self.positions:
            return
        topic, partition = self.chance.choice(sorted(self.positions))
        position, version = self.positions[topic, partition], self.chance.randint(4, 12)
        found = await fetch(self.stream, topic, partition, position, version, 300)
        if found.error_code == OFFSET_OUT_OF_RANGE and position > self.ledger.durable[topic, partition]:
            # What was read here before power was lost had not been acknowledged yet; other records take these offsets
            # soon.
            return
        if found.error_code:
            if found.error_code != STORAGE_ERROR:
                raise self.broken(f"fetching {topic}-{partition} @{position}: {found.error_code}")
            return
        values = values_of(bytes(found.records or b""), version, position)
        for at, (_, value) in values.items():
            if at != self.positions[topic, partition]:
                raise self.broken(f"{topic}-{partition}: {at} follows {self.positions[topic, partition]}")
            self.ledger.saw(topic, partition, at, value, "a member's fetch")
            self.positions[topic, partition] = at + 1

    async def _commit(self) -> None:
        # A position is worth a commit only if it says more than what is committed already.
        due = {
            c: at for c, at in self.positions.items() if at > self.ledger.committed.get((self.group, *c), 0)
        }
        if not due:
            return
        topics = [
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    OffsetCommitRequestPartition(partition_index=p, committed_offset=at)
                    for (t, p), at in due.items()
                    if t == topic
                ],
            )
            for topic in TOPICS
        ]
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=self.generation,
            member_id=self.member_id,
            topics=[one for one in topics if one.partitions],
        )
        for claim, at in due.items():
            self.ledger.will_commit((self.group, *claim), at)
        newest = self.ledger.generations[self.group]
        answer = await self.stream.call(OFFSET_COMMIT, self.chance.randint(2, 9), request)
        codes = {one.error_code for topic in answer.topics for one in topic.partitions}
        if codes == {0}:
            self.ledger.fenced_member_spoke(self.group, self.generation, newest, "a commit")
            for claim, at in due.items():
                self.ledger.was_committed((self.group, *claim), at)
            self.did("commit")
        else:
            self._forget(max(codes))


class ManagedConsumer(Client):
    """A managed consumer of the group `managed`: polls, and acknowledges what it got."""

    group = "managed"
    pause = 0.5

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.stream = HttpStream(world.machine.network, HTTP_PORT)
        self.path = f"/api/v1/groups/{self.group}/consumers"
        self._made = self._surely = False
        self._ack: str | None = None
        self._batch: dict[tuple[str, str, int], int] = {}

    async def step(self) -> None:
        """Make the consumer, then poll with the acknowledgement of what came before."""
        if not self._made:
            body = {"name": self.name, "topics": list(TOPICS), "start": "earliest"}
            status, answer = await self.stream.call("POST", self.path, body)
            if status not in (201, 409, 500, 503, 507):
                raise self.broken(f"cannot be made: {status} {answer}")
            # 409 may speak of one that is being made, and is then not made because the disk is full.
            self._made, self._surely = status in (201, 409), status == 201
        elif self._ack is not None and self.chance.random() < 0.3:
            await self._acknowledge()
        else:
            await self._poll()

    async def _acknowledge(self) -> None:
        batch = self._batch
        for claim, at in batch.items():
            self.ledger.will_commit(claim, at)
        status, answer = await self.stream.call("POST", f"{self.path}/{self.name}:ack", {"ack": self._ack})
        if status == 200:
            self._confirm(
                {(self.group, r["topic"], r["partition"]): r["next_offset"] for r in answer["acknowledged"]}
            )
        elif status == 409:
            self._ack, self._batch = None, {}
        elif status not in (500, 503, 507):
            raise self.broken(f"an ack was refused: {status} {answer}")

    def _confirm(self, committed: dict[tuple[str, str, int], int]) -> None:
        for claim, at in committed.items():
            # Less than what was delivered only if a loss of power has taken the end of it.
            end, power_was_lost = self._batch.get(claim, -1), self.ledger.kept_from_the_start is not None
            if at > end or (at < end and not power_was_lost):
                raise self.broken(f"{claim}: {at} is acknowledged, of a batch that ends at {end}")
            self.ledger.was_committed(claim, at)
        self._ack, self._batch = None, {}
        self.did("ack")

    async def _poll(self) -> None:
        body: dict[str, object] = {"limit": 20, "wait_ms": self.chance.choice((0, 1000, 8000))}
        if self._ack is not None and self.chance.random() < 0.8:
            body["ack"] = self._ack
            for claim, at in self._batch.items():
                self.ledger.will_commit(claim, at)
        known = dict(self.ledger.committed)
        status, answer = await self.stream.call("POST", f"{self.path}/{self.name}:poll", body)
        if status == 409 and "ack" in body:
            self._ack, self._batch = None, {}
            return
        if status in (409, 429, 500, 503, 507):
            return
        if status == 404 and not self._surely:
            self._made, self._ack, self._batch = False, None, {}
            return
        if status != 200:
            raise self.broken(f"a poll was refused: {status} {answer}")
        # What a rebalance took in the meantime was not committed, and a poll does not say which: only an
        # acknowledgement of its own is sure.
        self._take(answer, known)

    def _take(self, answer: dict[str, Any], known: dict[tuple[str, str, int], int]) -> None:
        batch: dict[tuple[str, str, int], int] = {}
        for record in answer["records"]:
            claim = (self.group, record["topic"], record["partition"])
            at = record["offset"]
            if claim in batch:
                if at != batch[claim]:
                    raise self.broken(f"{claim}: {at} follows {batch[claim]}")
            else:
                at_least, at_most = known.get(claim, 0), self.ledger.may_be_committed.get(claim, 0)
                if not at_least <= at <= at_most:
                    raise self.broken(
                        f"{claim}: a batch begins at {at}; {at_least} was acknowledged, {at_most} at most"
                    )
            self.ledger.saw(*claim[1:], at, record["value"].encode(), "a managed poll")
            batch[claim] = at + 1
        if batch:
            self.did("managed poll")
            self.say(f"got {batch}")
        self._ack, self._batch = answer.get("ack"), batch

    async def finish(self) -> None:
        """Read on until nothing is left, if time allows: what was acknowledged must not come again."""
        for _ in range(3):
            try:
                await asyncio.wait_for(self._poll(), 60)
            except (GoneError, TimeoutError):
                await asyncio.sleep(1.0)
