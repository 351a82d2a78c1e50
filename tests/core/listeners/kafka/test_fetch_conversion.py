"""Fetches of early versions: each gets a format that it knows, and large ones are converted beside the loop."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from core.errors import ErrorCode
from core.listeners.kafka import fetch_conversion
from core.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from core.records.batch import batches, build_batch, check_crc, read_records
from core.records.message_set import parse_message_set
from core.records.record import NewRecord

from .conftest import Client, produce_request


def fetch_request(
    offset: int = 0, partitions: tuple[int, ...] = (0,), max_bytes: int = 1_000_000
) -> FetchRequest:
    asked = [FetchPartition(one, fetch_offset=offset, partition_max_bytes=max_bytes) for one in partitions]
    return FetchRequest(max_wait_ms=0, min_bytes=1, topics=[FetchTopic("t", partitions=asked)])


@pytest.mark.parametrize("topic_setting", ["producer", "zstd"])
async def test_zstd_comes_as_gzip_to_clients_that_do_not_know_it(client: Client, topic_setting: str) -> None:
    await client.create("t", compression_type=topic_setting)
    data = build_batch([NewRecord(value=b"a")], now_ms=client.listener.broker.clock.wall_ms(), codec=4)
    for version, code in [(6, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE), (7, 0)]:
        answer = await client.ask(0, version, produce_request("t", bytes(data)))
        assert answer.responses[0].partition_responses[0].error_code == code
    for version, codec in [(9, 1), (10, 4)]:
        answer = await client.ask(1, version, fetch_request())
        (one,) = answer.responses[0].partitions
        assert one.error_code == 0
        records = bytes(one.records)
        ((position, header),) = batches(records)
        assert header.codec == codec and check_crc(records, position, header)
        assert [r.value for r in read_records(records, position, header, max_bytes=1000)] == [b"a"]
    answer = await client.ask(1, 3, fetch_request())
    (group,) = parse_message_set(bytes(answer.responses[0].partitions[0].records), max_bytes=1000)
    assert group.codec == 1 and [value for *_, value in group.messages] == [b"a"]


async def test_every_partition_of_a_fetch_from_before_kip_74_gets_its_messages(client: Client) -> None:
    """Such clients have no limit over all partitions, and start again with the same one each time."""
    await client.create("t", partitions=3)
    for partition in range(3):
        await client.produce("t", [b"x" * 500], partition=partition)
    request = fetch_request(partitions=(0, 1, 2), max_bytes=100)
    for version, sizes in [(0, [100, 100, 100]), (2, [100, 100, 100]), (3, [535, 0, 0])]:
        answer = await client.ask(1, version, request)
        assert [len(one.records) for one in answer.responses[0].partitions] == sizes, version


async def test_a_large_conversion_runs_in_a_thread(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    await client.create("t")
    await client.produce("t", [b"x" * 200_000, b"y" * 200_000])
    here, seen = threading.get_ident(), []
    convert = fetch_conversion.down_convert

    def watched(*args: Any, **options: Any) -> bytes:
        seen.append(threading.get_ident())
        return convert(*args, **options)

    monkeypatch.setattr(fetch_conversion, "down_convert", watched)
    await client.produce("t", [b"small"])
    await client.ask(1, 2, fetch_request())
    await client.ask(1, 2, fetch_request(offset=2))
    assert [thread == here for thread in seen] == [False, True]
