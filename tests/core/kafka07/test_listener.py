"""The Kafka 0.7 listener over sockets: what its clients rely on, what other listeners see of it, and bad input."""

from __future__ import annotations

import asyncio
import gzip
import logging
import struct

import pytest

from core.config import Config
from core.records.compression import GZIP, SNAPPY, compress
from core.records.record import NewRecord
from core.types import TopicPartition
from core.vocabulary.records import FetchRead
from tests.core.kafka07.conftest import Serve, port
from tests.core.kafka07.old_client import (
    OldClient,
    fetch,
    frame,
    joined,
    offsets,
    payloads_of,
    produce,
    target,
)

TP = TopicPartition("t", 0)
MAGICS = pytest.mark.parametrize("magic", [0, 1])


@MAGICS
async def test_what_is_written_in_either_format_is_read_in_the_listener_s_own(
    serve: Serve, magic: int
) -> None:
    server = await serve()
    async with OldClient(port(server, magic)) as client:
        await client.produce("t", b"one", b"", magic=0)
        await client.produce("t", b"two", magic=1)
        assert await client.fetch("t", 0) == (0, joined([b"one", b"", b"two"], magic))


async def test_0_7_sees_values_of_records_alone_and_others_see_its_messages(serve: Serve) -> None:
    server = await serve()
    records = [
        NewRecord(b"k", b"with a key", (("h", b"1"),)),
        NewRecord(b"k", None),
        NewRecord(None, b"last"),
    ]
    await server.broker.topics.create("t")
    await server.broker.records.produce("t", records)
    async with OldClient(port(server)) as client:
        assert await client.fetch("t", 0) == (0, joined([b"with a key", b"", b"last"]))
        await client.produce("t", b"old")
    read = await server.broker.records.read(TP, 3, max_bytes=1000, max_records=10)
    assert [(r.offset, r.key, r.value, r.headers, r.timestamp) for r in read.records] == [
        (3, None, b"old", (), -1)
    ]


@pytest.mark.parametrize("codec", [GZIP, SNAPPY])
async def test_a_wrapper_is_stored_with_its_codec_and_read_without(serve: Serve, codec: int) -> None:
    server = await serve()
    async with OldClient(port(server)) as client:
        wrapper = compress(codec, joined([b"inside"] * 100))
        await client.produce("t", wrapper, codec=codec)
        assert await client.fetch("t", 0) == (0, joined([b"inside"] * 100))
    (read,), _, _, _ = server.broker.partitions.fetch_now([FetchRead(TP, 0, 10_000)], max_bytes=10_000)
    assert read.read and read.read.slice and read.read.slice.read()[22] & 7 == codec


async def test_a_producer_that_sends_and_hangs_up_loses_nothing(serve: Serve) -> None:
    server = await serve()
    for i in range(5):
        async with OldClient(port(server)) as client:
            client.writer.write(
                produce(f"t{i}", b"a") + produce(f"t{i}", b"b" * 40_000) + produce(f"t{i}", b"c")
            )
    async with OldClient(port(server)) as client:
        for i in range(5):
            expected = joined([b"a", b"b" * 40_000, b"c"])
            for _ in range(200):
                if await client.fetch(f"t{i}", 0) == (0, expected):
                    break
                await asyncio.sleep(0.01)
            else:
                raise AssertionError("messages are missing")


async def test_a_new_topic_has_the_default_number_of_partitions_from_its_first_message_on(
    serve: Serve,
) -> None:
    server = await serve(default_partitions=3)
    async with OldClient(port(server)) as client:
        assert await client.fetch("t", 0, partition=2) == (0, b"")
        assert not server.broker.topics.list()
        await client.produce("t", b"two", partition=2)
        assert server.broker.topics.get("t").partitions == 3
        assert await client.fetch("t", 0, partition=2) == (0, joined([b"two"]))
        await client.produce("t", b"anywhere", partition=-1)
        found = [await client.fetch("t", 0, partition=i) for i in range(3)]
        assert sum(len(payloads_of(chunk)) for _, chunk in found) == 2
        client.writer.write(produce("new", b"x", partition=3))
        assert await client.is_closed()
    assert [topic.name for topic in server.broker.topics.list()] == ["t"]


async def test_without_auto_creation_a_message_for_an_unknown_topic_closes(serve: Serve) -> None:
    server = await serve(auto_create_topics=False)
    async with OldClient(port(server)) as client:
        client.writer.write(produce("t", b"x"))
        assert await client.is_closed()
    assert not server.broker.topics.list()


async def test_a_compacted_topic_takes_no_messages_without_keys(serve: Serve) -> None:
    server = await serve()
    await server.broker.topics.create("t", configs={"cleanup.policy": "compact"})
    async with OldClient(port(server)) as client:
        client.writer.write(produce("t", b"x"))
        assert await client.is_closed()


async def test_a_multiproduce_with_one_wrong_part_appends_nothing(serve: Serve) -> None:
    server = await serve()
    parts = produce("t", b"good")[6:] + produce("u", b"bad")[6:-1] + b"?"
    async with OldClient(port(server)) as client:
        await client.produce("t", b"first")
        client.writer.write(frame(3, b"\0\2" + parts))
        assert await client.is_closed()
    async with OldClient(port(server)) as client:
        assert await client.fetch("t", 0) == (0, joined([b"first"]))


async def test_addresses_continue_across_a_restart(serve: Serve) -> None:
    payloads = [b"message %d" % i for i in range(300)]
    server = await serve(topic_defaults={"segment.bytes": "1024"})
    async with OldClient(port(server)) as client:
        for i in range(0, 300, 10):
            await client.produce("t", *payloads[i : i + 10])
        before = await client.offsets("t", -1)
    server = await serve()
    async with OldClient(port(server)) as client:
        assert await client.offsets("t", -1) == before
        assert before[1][0] == len(joined(payloads)) and len(before[1]) > 3
        address, found = 0, b""
        while chunk := (await client.fetch("t", address, 1000))[1]:
            found, address = found + chunk, address + len(chunk)
        assert found == joined(payloads)


async def test_a_large_log_is_measured_in_slices_while_others_are_served(serve: Serve) -> None:
    server = await serve(legacy_slice_bytes=64 * 1024)
    await server.broker.topics.create("t")
    for _ in range(40):
        await server.broker.records.produce("t", [NewRecord(value=b"v" * 1000) for _ in range(100)])
    async with OldClient(port(server)) as client, OldClient(port(server)) as other:
        slow = asyncio.create_task(client.offsets("t", -1))
        assert await other.fetch("nothing", 0) == (0, b"")
        assert not slow.done()
        assert await slow == (0, [40 * 100 * 1010, 0])
        code, chunk = await client.fetch("t", 3_000_000, 500_000)
        assert (code, len(chunk)) == (0, 500_000)


async def test_a_chunk_is_bounded_but_a_large_message_is_returned_whole_on_request(serve: Serve) -> None:
    server = await serve(legacy_fetch_max_bytes=10_000)
    async with OldClient(port(server)) as client:
        await client.produce("t", *[b"s" * 990] * 20)
        await client.produce("t", b"L" * 50_000)
        assert len((await client.fetch("t", 0))[1]) == 10_000
        assert await client.fetch("t", 20_000) == (0, joined([b"L" * 50_000]))
        assert len((await client.fetch("t", 20_000, 30_000))[1]) == 30_000
        part = fetch("t", 0)[6:]
        answer = await client.ask(frame(2, b"\0\3" + part * 3))
        assert len(answer) == 6 + 3 * 6 + 10_000


async def test_a_deleted_prefix_is_out_of_range(serve: Serve) -> None:
    server = await serve()
    async with OldClient(port(server)) as client:
        await client.produce("t", b"aaa", b"bbb", b"ccc")
        await server.broker.partitions.delete_records([(TP, 2)])
        assert await client.fetch("t", 13) == (1, b"")
        assert await client.fetch("t", 26) == (0, joined([b"ccc"]))
        assert await client.offsets("t", -2) == (0, [26])


async def test_a_topic_that_is_made_again_begins_with_address_0(serve: Serve) -> None:
    server = await serve()
    async with OldClient(port(server)) as client:
        await client.produce("t", b"old one", b"another")
        assert (await client.fetch("t", 0))[1]
        await server.broker.topics.delete("t")
        assert await client.fetch("t", 0) == (0, b"")
        await client.produce("t", b"new")
        assert await client.fetch("t", 0) == (0, joined([b"new"]))


GOOD = joined([b"one"])
HOSTILE = {
    "a bomb": produce("t", gzip.compress(joined([bytes(30 << 20)])), codec=GZIP),
    "a bomb in a bomb": produce(
        "t", gzip.compress(joined([b""]) + gzip.compress(bytes(1 << 20)) * 20), codec=GZIP
    ),
    "a length of -1": frame(0, target("t", 0) + struct.pack(">ii", 13, -1) + GOOD[4:]),
    "a length of 2^31-1": frame(0, target("t", 0) + struct.pack(">ii", 13, 2**31 - 1) + GOOD[4:]),
    "a set of -1 bytes": frame(0, target("t", 0) + struct.pack(">i", -1)),
    "magic 2": frame(0, target("t", 0) + struct.pack(">i", 13) + GOOD[:4] + b"\2" + GOOD[5:]),
    "32767 fetches": frame(2, struct.pack(">h", 32767) + bytes(40)),
    "an unknown type": frame(5, b""),
    "a modern ApiVersions": b"\0\0\0\x12" + b"\0\x12\0\x03" + b"\0\0\0\1" + b"\0\3abc\0\1\1\1\0",
    "a frame of -1": struct.pack(">i", -1),
    "a frame of 2^31-1": struct.pack(">i", 2**31 - 1),
    "a frame of nothing": struct.pack(">i", 0),
    "an illegal name": produce("../../etc", b"x"),
    "a name of 300": produce("n" * 300, b"x"),
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
async def test_bad_input_closes_its_own_connection_with_one_line_and_nothing_else(
    serve: Serve, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    server = await serve(max_decompressed_bytes=1 << 20)
    async with OldClient(port(server)) as other, OldClient(port(server)) as client:
        assert await other.fetch("t", 0) == (0, b"")
        client.writer.write(data)
        assert await client.is_closed()
        assert await other.fetch("t", 0) == (0, b"")
    warnings = [r for r in caplog.records if r.levelno >= logging.WARNING]
    assert len(warnings) == 1 and not warnings[0].exc_info
    assert not server.broker.topics.list()


async def test_questions_that_make_no_sense_have_an_answer(serve: Serve) -> None:
    server = await serve()
    async with OldClient(port(server)) as client:
        await client.produce("t", b"x")
        assert await client.fetch("t", 0, -1) == (4, b"")
        assert await client.fetch("t", 0, -(2**31)) == (4, b"")
        assert await client.fetch("t", 2**63 - 1, 2**31 - 1) == (1, b"")
        assert await client.fetch("t", -(2**63)) == (1, b"")
        assert await client.fetch("t", 0, partition=-1) == (3, b"")
        assert await client.fetch("t", 0, partition=2**31 - 1) == (3, b"")
        assert await client.fetch("../t", 0) == (-1, b"")
        assert await client.offsets("t", -1, -1) == (0, [])
        assert await client.offsets("t", -1, 2**31 - 1) == (0, [11, 0])
        assert await client.offsets("t", -77, 5) == (0, [])
        assert await client.offsets("t", 2**63 - 1, 5) == (0, [11, 0])
        assert await client.offsets("t", -1, partition=9) == (3, [])
        assert await client.ask(offsets("", -1)) == b"\0\0\0\6\xff\xff\0\0\0\0"


async def test_the_default_of_a_listener_is_magic_1(serve: Serve) -> None:
    server = await serve()
    assert str(server.endpoints[0]).endswith("?magic=0")
    assert Config().listeners[0].options == ()
    assert {load.scheme for load in server.load()} == {"kafka07"}


async def test_requests_and_errors_are_counted_by_their_names(serve: Serve) -> None:
    server = await serve()
    async with OldClient(port(server)) as client:
        await client.produce("t", b"x")
        await client.fetch("t", 0)
        await client.fetch("t", 12)
        await client.offsets("t", -1)
        await client.ask(frame(2, b"\0\1" + fetch("t", 0, partition=4)[6:]))
    counters = server.broker.counters
    assert {name: meter.count for name, meter in counters.kafka07.items()} == {
        "PRODUCE": 1, "FETCH": 3, "OFFSETS": 1, "MULTIFETCH": 1,
    }  # fmt: skip
    assert dict(counters.kafka07_errors) == {
        ("FETCH", "OFFSET_OUT_OF_RANGE"): 1,
        ("MULTIFETCH", "WRONG_PARTITION"): 1,
    }
    assert counters.kafka07["FETCH"].bytes_out == (4 + 2) * 3 + 11


async def test_a_client_beyond_its_quota_is_not_read_from_for_a_while(serve: Serve) -> None:
    server = await serve()
    await server.broker.quotas.alter(
        (("user", "ANONYMOUS"),), {"producer_byte_rate": 10.0, "consumer_byte_rate": 10.0}
    )

    def muted() -> int:
        shared = [acceptor._shared for acceptor in server._acceptors]
        return sum(one._muted is not None for each in shared if each for one in each.connections)

    await server.broker.topics.create("t")
    await server.broker.records.produce("t", [NewRecord(None, bytes(1_000))])
    async with OldClient(port(server)) as client:
        assert (await client.fetch("t", 0))[0] == 0
        assert muted() == 1
    async with asyncio.timeout(60):
        while muted():
            await asyncio.sleep(0.005)
    async with OldClient(port(server)) as client:
        client.writer.write(produce("t", bytes(1_000)))
        async with asyncio.timeout(60):
            while muted() < 1:
                await asyncio.sleep(0.005)
