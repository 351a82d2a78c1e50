"""The client among brokers that fail: three of them in memory, in virtual time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from core.client.cluster import ClusterClient
from core.client.failures import LinkLost
from core.client.fetcher import Fetcher
from core.client.producer import Part, Producer
from core.client.settings import Address, ClientSettings
from core.errors import BrokerError, ErrorCode
from core.protocol.messages.heartbeat import HeartbeatRequest
from core.protocol.messages.init_producer_id import InitProducerIdResponse
from core.protocol.messages.metadata import MetadataResponse
from core.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from core.records.batch import build_batch, decode_all
from core.records.record import NewRecord
from core.types import TopicPartition
from tests.core.client.fake_cluster import CLOSE, CLOSE_AFTER, DROP, FakeBroker, FakeCluster, Later, Log
from tests.virtual_time import LoopClock, run

TP = TopicPartition("t", 0)
PRODUCE, METADATA, HEARTBEAT, INIT = 0, 3, 12, 22
NOW = 1_000
MIB = 2**20


class Setup:
    """A fake cluster with topic t, and a client of it."""

    def __init__(self, fake: FakeCluster, **settings: Any) -> None:
        self.fake = fake
        self.told: list[TopicPartition] = []
        bootstrap = tuple(one.address for one in fake.brokers.values())
        self.cluster = ClusterClient(
            ClientSettings(**{"bootstrap": bootstrap, **settings}), LoopClock(), fake
        )
        self.producer = Producer(self.cluster)
        self.fetcher = Fetcher(self.cluster, self.told.append)

    def send(self, *texts: bytes, tp: TopicPartition = TP, **options: Any) -> asyncio.Future[list[Part]]:
        return self.producer.send(tp, [NewRecord(value=text) for text in texts], now_ms=NOW, **options)

    @property
    def log(self) -> Log:
        return self.fake.logs[TP]


@asynccontextmanager
async def setup(
    partitions: int = 1, seed: int = 0, brokers: int = 3, **settings: Any
) -> AsyncIterator[Setup]:
    fake = FakeCluster(brokers, seed)
    fake.create("t", partitions)
    made = Setup(fake, **settings)
    await made.cluster.open()
    yield made
    await made.producer.close()
    await made.fetcher.close()
    await made.cluster.close()
    assert made.producer.waiting_bytes == 0


def virtual(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run an asynchronous test in virtual time."""

    def sync(*arguments: Any, **named: Any) -> None:
        async def limited() -> None:
            async with asyncio.timeout(3_600):
                await test(*arguments, **named)

        run(limited())

    sync.__name__, sync.__doc__ = getattr(test, "__name__", "test"), test.__doc__
    return sync


def refusal(code: ErrorCode) -> Callable[[FakeBroker, int, ProduceRequest], ProduceResponse]:
    """Refuse all batches of a Produce."""

    def refuse(_broker: FakeBroker, _version: int, request: ProduceRequest) -> ProduceResponse:
        topics = [
            TopicProduceResponse(
                topic.name,
                partition_responses=[
                    PartitionProduceResponse(one.index, code, -1) for one in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
        return ProduceResponse(topics)

    return refuse


@pytest.mark.parametrize("seed", range(20))
def test_whatever_fails_each_record_is_there_once_and_in_order(seed: int) -> None:
    async def work() -> None:
        dice = random.Random(seed)
        many = {"delivery_timeout_ms": 600_000, "request_timeout_ms": 2_000, "max_batch_bytes": 200}
        async with setup(4, seed, **many) as s:
            # Not those that deny an append: a broker says them only if they are true.
            refusals = (
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                ErrorCode.REQUEST_TIMED_OUT,
                ErrorCode.KAFKA_STORAGE_ERROR,
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            )
            troubles = [CLOSE, CLOSE_AFTER, DROP, *map(refusal, refusals)]
            ends = asyncio.get_running_loop().time() + 20

            def hook(broker: FakeBroker, version: int, request: Any) -> Any:
                if asyncio.get_running_loop().time() > ends or dice.random() > 0.15:
                    return None
                trouble = dice.choice(troubles)
                return trouble(broker, version, request) if callable(trouble) else trouble

            s.fake.hooks[PRODUCE] = hook
            s.fake.hints = dice.random() < 0.5
            tps = list(s.fake.logs)
            expected: dict[TopicPartition, list[bytes]] = {tp: [] for tp in tps}
            waiting = []
            for number in range(400):
                tp, text = dice.choice(tps), b"%d" % number
                expected[tp].append(text)
                waiting.append((tp, text, s.send(text, tp=tp)))
                if dice.random() < 0.5:
                    await asyncio.sleep(dice.choice((0, 0.0005, 0.003, 0.1)))
                if dice.random() < 0.02:
                    s.fake.move(dice.choice(tps), dice.choice(list(s.fake.brokers)))
                if dice.random() < 0.02:
                    victim = s.fake.brokers[dice.choice(list(s.fake.brokers))]
                    victim.kill()
                    asyncio.get_running_loop().call_later(
                        dice.choice((0.01, 1, 4)), setattr, victim, "alive", True
                    )
            for tp, text, future in waiting:
                (part,) = await future
                assert part.error is None and part.result is not None, part
                at = part.result.base_offset
                assert s.fake.logs[tp].values[at] == text
            for tp in tps:
                assert s.fake.logs[tp].values == expected[tp]

    run(work())


@virtual
async def test_the_leader_dies_with_five_batches_under_way() -> None:
    async with setup() as s:
        await s.send(b"first")
        s.fake.latency = 0.05
        batches = [build_batch([NewRecord(value=b"%d" % number)], now_ms=1) for number in range(12)]
        sent = [s.producer.append(TP, batch) for batch in batches]
        under_way = 0
        for _ in range(20):
            await asyncio.sleep(0.005)
            under_way = max(under_way, sum(link.waiting for link in s.cluster.links.open))
        leader = s.fake.brokers[s.log.leader]
        assert under_way == 5
        leader.kill()
        s.fake.move(TP, 2)
        results = await asyncio.gather(*sent)
        assert [one.base_offset for one in results] == list(range(1, 13))
        assert s.log.values == [b"first", *(b"%d" % number for number in range(12))]


@virtual
async def test_a_new_leader_that_the_answer_names_needs_no_metadata() -> None:
    async with setup() as s:
        await s.send(b"a")
        asked = s.fake.asked.count
        s.fake.move(TP, 2)
        before = sum(1 for _, key in s.fake.asked if key == METADATA)
        assert (await s.send(b"b"))[0].error is None
        assert sum(1 for _, key in s.fake.asked if key == METADATA) == before
        assert s.cluster.leader(TP) == 2 and asked is not None


@virtual
async def test_a_broker_that_throttles_is_left_alone_and_memory_stays_bounded() -> None:
    async with setup(buffer_memory=1_000) as s:
        await s.send(b"a")
        loop = asyncio.get_running_loop()
        times: list[float] = []

        def hook(_broker: FakeBroker, _version: int, _request: ProduceRequest) -> None:
            times.append(loop.time())

        s.fake.hooks[PRODUCE] = lambda *_: ProduceResponse(
            [TopicProduceResponse("t", partition_responses=[PartitionProduceResponse(0, 0, 1)])],
            throttle_time_ms=3_000,
        )
        muted = loop.time()
        await s.send(b"b")
        s.fake.hooks[PRODUCE] = hook
        waiting = []
        with pytest.raises(BrokerError) as caught:
            for _ in range(50):
                waiting.append(s.send(b"x" * 50))
        assert caught.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert s.producer.waiting_bytes <= 1_000
        for one in waiting:
            assert (await one)[0].error is None
        assert times and times[0] >= muted + 3


@virtual
async def test_too_few_replicas_are_told_after_some_attempts() -> None:
    async with setup() as s:
        s.fake.hooks[PRODUCE] = refusal(ErrorCode.NOT_ENOUGH_REPLICAS)
        (part,) = await s.send(b"a")
        assert part.error is not None and part.error.code is ErrorCode.NOT_ENOUGH_REPLICAS
        assert sum(1 for _, key in s.fake.asked if key == PRODUCE) == 4
        del s.fake.hooks[PRODUCE]
        assert (await s.send(b"b"))[0].error is None
        assert s.log.values == [b"b"]


@virtual
async def test_records_expire_if_no_leader_comes_back() -> None:
    async with setup(brokers=1, delivery_timeout_ms=5_000, request_timeout_ms=2_000) as s:
        await s.send(b"a")
        s.fake.brokers[1].kill()
        begun = asyncio.get_running_loop().time()
        for part in await asyncio.gather(s.send(b"b"), s.send(b"c")):
            assert part[0].error is not None
            assert part[0].error.code in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NETWORK_EXCEPTION)
        assert asyncio.get_running_loop().time() - begun < 10
        s.fake.brokers[1].alive = True
        assert (await s.send(b"d"))[0].error is None
        assert s.log.values == [b"a", b"d"]


@virtual
async def test_a_cluster_that_gives_no_producer_ids() -> None:
    async with setup() as s:
        s.fake.hooks[INIT] = lambda *_: InitProducerIdResponse(
            error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        )
        sent = [s.send(b"%d" % number) for number in range(3)]
        assert [(await one)[0].error for one in sent] == [None] * 3
        assert s.log.values == [b"0", b"1", b"2"] and not s.log.producers


@virtual
async def test_all_brokers_are_replaced_by_others(caplog: pytest.LogCaptureFixture | None = None) -> None:
    """KIP-899: the bootstrap address leads to the new ones."""
    async with setup(metadata_max_age_ms=1_000) as s:
        await s.send(b"a")
        for broker in s.fake.brokers.values():
            for connection in list(broker.connections):
                connection.lose()
            broker.address = Address(f"new{broker.broker_id}", 9092)
        # The name of the bootstrap address now belongs to a new broker.
        s.fake.brokers[3].address = Address("broker3", 9092)
        assert (await s.send(b"b"))[0].error is None
        assert {one.address.host for one in s.cluster.brokers.values()} == {"new1", "new2", "broker3"}


@virtual
async def test_another_cluster_at_a_known_address_is_refused() -> None:
    async with setup(brokers=1, request_timeout_ms=500) as s:
        s.fake.cluster_id = "another"
        with pytest.raises(LinkLost, match="belongs to the cluster 'another', not to 'fake'"):
            await s.cluster.refresh()


@virtual
async def test_a_broker_that_asks_for_another_bootstrap() -> None:
    """KIP-1102."""
    async with setup() as s:
        answers = [MetadataResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED)]
        s.fake.hooks[METADATA] = lambda *_: answers.pop() if answers else None
        await s.cluster.refresh()
        assert not answers and len(s.cluster.brokers) == 3


@virtual
async def test_an_answer_with_an_older_leader_epoch_is_not_believed() -> None:
    async with setup() as s:
        s.fake.move(TP, 2)
        await s.cluster.refresh()
        s.log.leader, s.log.epoch = 1, 0
        await s.cluster.refresh()
        assert s.cluster.leader(TP) == 2


@virtual
async def test_a_coordinator_that_moves_loads_or_is_away() -> None:
    async with setup() as s:
        request = HeartbeatRequest("g", 1, "m")
        assert (await s.cluster.ask_coordinator("g", request)).error_code == 0
        s.fake.coordinator = 2
        assert (await s.cluster.ask_coordinator("g", request)).error_code == 0
        s.fake.brokers[2].kill()
        asyncio.get_running_loop().call_later(1, setattr, s.fake, "coordinator", 3)
        assert (await s.cluster.ask_coordinator("g", request)).error_code == 0
        troubles = [CLOSE, CLOSE_AFTER]
        s.fake.hooks[HEARTBEAT] = lambda *_: troubles.pop() if troubles else None
        assert (await s.cluster.ask_coordinator("g", request)).error_code == 0
        s.fake.coordinator = 1
        s.fake.brokers[3].kill()
        s.fake.coordinator = 3
        with pytest.raises(BrokerError):
            await s.cluster.ask_coordinator("g", request, patience_ms=3_000)


@virtual
async def test_a_broker_with_few_versions() -> None:
    """Produce 7, Fetch 11, Metadata 8, ApiVersions 0: no topic ids, no leader hints, no record errors."""
    fake = FakeCluster(1)
    fake.create("t")
    fake.versions |= {0: (0, 7), 1: (0, 11), 3: (0, 8), 18: (0, 0)}
    s = Setup(fake)
    await s.cluster.open()
    assert (await s.send(b"a"))[0].error is None
    got = await s.fetcher.bring(TP, 0, max_bytes=MIB)
    assert [record.value for record in decode_all(got.data, max_bytes=MIB)] == [b"a"]
    await s.producer.close()
    await s.fetcher.close()
    await s.cluster.close()


@virtual
async def test_readers_follow_a_leader_that_moves_or_dies() -> None:
    async with setup(fetch_wait_ms=100) as s:
        await s.send(b"0")
        offset = 0
        for number, change in enumerate(
            (lambda: s.fake.move(TP, 2), lambda: s.fake.brokers[2].kill(), lambda: None)
        ):
            while offset <= number:
                got = s.fetcher.at_hand(TP, offset, max_bytes=MIB) or await s.fetcher.bring(
                    TP, offset, max_bytes=MIB
                )
                if got.next_offset == offset:
                    await asyncio.sleep(0.01)
                    continue
                assert [record.value for record in decode_all(got.data, max_bytes=MIB)][-1] == b"%d" % number
                offset = got.next_offset
            change()
            if not s.fake.brokers[s.log.leader].alive:
                s.fake.move(TP, 3)
            assert (await s.send(b"%d" % (number + 1)))[0].error is None


@virtual
async def test_a_log_that_was_cut_is_noticed() -> None:
    """An unclean election: offsets that readers have seen get other records (KIP-320)."""
    async with setup(fetch_wait_ms=50) as s:
        for number in range(3):
            await s.send(b"old %d" % number)
        await s.fetcher.bring(TP, 0, max_bytes=MIB)
        s.log.batches, s.log.end = s.log.batches[:1], 1
        s.log.producers.clear()
        s.fake.move(TP, 2)
        await s.cluster.refresh(["t"])
        while s.fetcher.bounds(TP) is not None:
            await asyncio.sleep(0.01)
        assert s.told
        await s.send(b"new")
        got = await s.fetcher.bring(TP, 1, max_bytes=MIB)
        assert [record.value for record in decode_all(got.data, max_bytes=MIB)] == [b"new"]


@virtual
async def test_an_answer_that_never_comes_ends_the_connection_and_not_the_record() -> None:
    async with setup(request_timeout_ms=1_000, delivery_timeout_ms=60_000) as s:
        answers = [DROP]
        s.fake.hooks[PRODUCE] = lambda *_: answers.pop() if answers else None
        assert (await s.send(b"a", timeout_ms=60_000))[0].error is None
        assert s.log.values == [b"a"]


@virtual
async def test_requests_that_wait_do_not_hold_up_others() -> None:
    async with setup() as s:
        s.fake.hooks[HEARTBEAT] = lambda *_: Later(None, 0)
        assert isinstance(Later(None, 1).wait_s, int)
        del s.fake.hooks[HEARTBEAT]
        await s.fetcher.bring(TP, 0, max_bytes=MIB)
        loop = asyncio.get_running_loop()
        await asyncio.sleep(0.1)
        begun = loop.time()
        assert (await s.send(b"a"))[0].error is None
        assert loop.time() - begun < 0.1, "the long poll has a connection of its own"
