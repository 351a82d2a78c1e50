"""Links to an embedded broker: versions, TLS, logins and their renewal, what a lost connection does."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import uvloop

from core.broker.broker import Broker
from core.client.failures import LinkLost
from core.client.link import Link, open_link
from core.client.network import Tcp
from core.client.settings import Address, ClientSettings, Login, Mechanism
from core.clock import Clock
from core.config import Config
from core.errors import BrokerError, ErrorCode
from core.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from core.protocol.messages.list_groups import ListGroupsRequest
from core.protocol.messages.metadata import MetadataRequest
from core.protocol.messages.produce import ProduceRequest
from core.records.record import NewRecord
from core.types import TopicPartition
from tests.core.client.conftest import Served, text_of
from tests.issuer import Issuer
from tests.tls import make_certificate

PASSWORD = "canary, of=a password"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
AUTH = (("auth", "plain,scram-sha-256,scram-sha-512"),)


async def opened(address: Address, **settings: Any) -> Link:
    clock = Clock()
    return await open_link(address, ClientSettings(bootstrap=(address,), **settings), clock, Tcp())


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[Served]:
    """A listener with a login; sessions last 1.3 s."""
    config = Config(
        data_dir=tmp_path,
        drain_timeout_ms=10,
        scram_iterations=4096,
        failed_authentication_delay_ms=0,
        max_reauth_ms=1_300,
        super_users=("User:alice",),
    )
    broker = Broker(config, Clock())
    await broker.open()
    await broker.users.create("alice", PASSWORD)
    served = Served(broker, AUTH)
    await served.start()
    yield served
    await served.stop()
    await broker.close()


async def test_requests_of_many_callers_are_answered_each_its_own(served: Served) -> None:
    link = await opened(served.address)
    await served.broker.topics.create("t")
    poll = link.start(
        FetchRequest(max_wait_ms=200, min_bytes=1, topics=[FetchTopic("t", partitions=[FetchPartition(0)])])
    )
    metadata = [link.start(MetadataRequest(topics=[])) for _ in range(20)]
    groups = await link.call(ListGroupsRequest())
    assert groups.groups == [] and (await poll).responses[0].topic == "t"
    assert [(await one).cluster_id for one in metadata] == [served.broker.cluster_id] * 20
    assert link.waiting == 0
    link.close()


async def test_versions_are_the_newest_of_both_and_name_topics_by_names(served: Served) -> None:
    link = await opened(served.address)
    assert [link.version(key) for key in (0, 1, 3, 8, 9)] == [12, 12, 13, 9, 9]
    assert link.version(1, 18) == 18 and link.version(1, 5) == 5
    assert link.serves(3) and not link.serves(4)
    with pytest.raises(BrokerError) as caught:
        await link.call(ProduceRequest(topic_data=[None]))  # type: ignore[list-item]
    assert caught.value.code is ErrorCode.INVALID_REQUEST
    link.close()
    with pytest.raises(LinkLost) as lost:
        await link.call(ListGroupsRequest())
    assert not lost.value.sent


@pytest.mark.parametrize("make_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_answers_of_all_sizes(tmp_path: Path, make_loop: Any) -> None:
    """Small frames share the buffer, larger ones are received into memory of their own."""

    async def work() -> None:
        broker = Broker(Config(data_dir=tmp_path, drain_timeout_ms=10), Clock())
        await broker.open()
        served = Served(broker)
        await served.start()
        await broker.topics.create("t", configs={"max.message.bytes": "8000000"})
        link = await opened(served.address)
        tp = TopicPartition("t", 0)
        sizes = [1, 30_000, 32_700, 32_768, 40_000, 100_000, 3_000_000]
        for size in sizes:
            await broker.records.produce("t", [NewRecord(value=b"x" * size)], partition=0)
        for _ in range(2):
            asked = [
                link.start(
                    FetchRequest(
                        max_wait_ms=0,
                        topics=[
                            FetchTopic(
                                "t",
                                partitions=[FetchPartition(0, fetch_offset=offset, partition_max_bytes=1)],
                            )
                        ],
                    )
                )
                for offset in range(len(sizes))
            ]
            got = [len((await one).responses[0].partitions[0].records) for one in asked]
            assert [size < found < size + 100 for size, found in zip(sizes, got, strict=True)] == [True] * 7
        assert broker.partitions.offsets(tp).high_watermark == len(sizes)
        link.close()
        await served.stop()
        await broker.close()

    with asyncio.Runner(loop_factory=make_loop) as runner:
        runner.run(work())


async def test_a_request_without_an_answer_in_time_closes_the_link(served: Served) -> None:
    await served.broker.topics.create("t")
    link = await opened(served.address)
    poll = FetchRequest(
        max_wait_ms=60_000, min_bytes=1, topics=[FetchTopic("t", partitions=[FetchPartition(0)])]
    )
    waiting = [link.start(poll, timeout_ms=50), link.start(ListGroupsRequest())]
    for one in waiting:
        with pytest.raises(LinkLost, match=r"did not answer Fetch in time") as caught:
            await one
        assert caught.value.sent
    assert link.lost is not None


async def test_a_caller_that_gives_up_hurts_no_other(served: Served) -> None:
    await served.broker.topics.create("t")
    link = await opened(served.address)
    poll = FetchRequest(
        max_wait_ms=100, min_bytes=1, topics=[FetchTopic("t", partitions=[FetchPartition(0)])]
    )
    first = link.start(poll, timeout_ms=50)
    first.cancel()
    assert (await link.call(ListGroupsRequest())).groups == []
    link.close()


async def test_a_host_that_does_not_speak_kafka() -> None:
    ended = asyncio.Event()

    async def garbage(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            await reader.read()
        writer.transport.abort()
        ended.set()

    server = await asyncio.start_server(garbage, "127.0.0.1", 0)
    address = Address("127.0.0.1", server.sockets[0].getsockname()[1])
    with pytest.raises(LinkLost, match="announced a frame of 1213486160 bytes"):
        await opened(address)
    await ended.wait()
    server.close()
    await server.wait_closed()


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_a_login(guarded: Served, mechanism: Mechanism) -> None:
    link = await opened(guarded.address, login=Login(mechanism, "alice", text_of(PASSWORD)))
    assert (await link.call(MetadataRequest(topics=[]))).brokers
    link.close()
    with pytest.raises(BrokerError) as caught:
        await opened(guarded.address, login=Login(mechanism, "alice", text_of("wrong")))
    assert caught.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED
    assert "'alice'" in caught.value.message and "wrong" not in caught.value.message


async def test_what_a_listener_does_not_offer(guarded: Served, served: Served) -> None:
    with pytest.raises(
        BrokerError, match=r"does not offer OAUTHBEARER; it offers: PLAIN, SCRAM-SHA-256"
    ) as caught:
        await opened(guarded.address, login=Login("OAUTHBEARER", "", text_of("token")))
    assert caught.value.code is ErrorCode.UNSUPPORTED_SASL_MECHANISM
    with pytest.raises(BrokerError):
        await opened(served.address, login=Login("PLAIN", "alice", text_of(PASSWORD)))


async def test_a_login_is_renewed_before_its_session_ends(guarded: Served) -> None:
    """Requests all the time, so that some are under way when it begins, and some are held."""
    count = 0

    async def secret() -> str:
        nonlocal count
        count += 1
        return PASSWORD

    await guarded.broker.topics.create("t")
    link = await opened(guarded.address, login=Login("SCRAM-SHA-256", "alice", secret))
    poll = FetchRequest(max_wait_ms=20, min_bytes=1, topics=[FetchTopic("t", partitions=[FetchPartition(0)])])
    loop = asyncio.get_running_loop()
    end = loop.time() + 3
    while loop.time() < end:
        waiting = [link.start(poll), link.start(MetadataRequest(topics=[]))]
        assert (await waiting[0]).responses and (await waiting[1]).brokers
    assert count >= 3 and link.lost is None
    link.close()


async def test_a_login_that_cannot_be_renewed_closes_the_link(guarded: Served) -> None:
    link = await opened(guarded.address, login=Login("PLAIN", "alice", text_of(PASSWORD)))
    lost: list[Link] = []
    link.closed.append(lost.append)
    await guarded.broker.users.set_password("alice", "another password")
    async with asyncio.timeout(60):
        while not lost:
            await asyncio.sleep(0.05)
    assert lost == [link]


async def test_an_access_token(tmp_path: Path) -> None:
    clock = Clock()
    async with Issuer(lambda: clock.wall_ms() / 1000).served() as issuer:
        config = Config(
            data_dir=tmp_path, failed_authentication_delay_ms=0, oauth=(issuer.settings,), drain_timeout_ms=10
        )
        broker = Broker(config, clock)
        await broker.open()
        served = Served(broker, (("auth", "oauthbearer"),))
        await served.start()
        link = await opened(
            served.address, login=Login("OAUTHBEARER", "", text_of(issuer.mint()), (("traceId", "7"),))
        )
        assert (await link.call(MetadataRequest(topics=[]))).brokers
        link.close()
        with pytest.raises(BrokerError) as caught:
            await opened(served.address, login=Login("OAUTHBEARER", "", text_of(issuer.mint(aud="x"))))
        assert caught.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED
        await served.stop()
        await broker.close()


async def test_tls(tmp_path: Path) -> None:
    certificate = make_certificate(tmp_path)
    broker = Broker(Config(data_dir=tmp_path, drain_timeout_ms=10), Clock())
    await broker.open()
    served = Served(broker, certificate=certificate)
    await served.start()
    await broker.topics.create("t")
    await broker.records.produce("t", [NewRecord(value=b"x" * 500_000)])
    link = await opened(served.address, tls=certificate.client())
    answer = await link.call(
        FetchRequest(
            max_wait_ms=0, topics=[FetchTopic("t", partitions=[FetchPartition(0, partition_max_bytes=1)])]
        )
    )
    assert len(answer.responses[0].partitions[0].records) > 500_000
    link.close()
    with pytest.raises(
        LinkLost, match=r"certificate of the broker at .* is refused: self-signed certificate"
    ):
        await opened(served.address, tls=ssl.create_default_context())
    other = Address("localhost", served.port)
    with pytest.raises(LinkLost, match="refused: Hostname mismatch"):
        await opened(other, tls=certificate.client())
    with pytest.raises(LinkLost):
        await opened(served.address, connect_timeout_ms=2_000)
    await asyncio.sleep(0.05)
    await served.stop()
    await broker.close()
