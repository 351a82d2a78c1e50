"""Clients from before transactions (Fetch below 4, ListOffsets below 2) get committed records, and no others."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from core.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from core.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from core.records.message_set import parse_message_set
from core.types import TopicPartition
from tests.core.transactional_log import Seen, TransactionalLog, a_bit_of_each

from .conftest import Client


async def made(client: Client, codec: int = 0) -> TransactionalLog:
    await client.create("t", segment_bytes="1000")
    return TransactionalLog(client.listener.broker, TopicPartition("t", 0), codec=codec)


def request(offset: int, max_bytes: int, **changes: Any) -> FetchRequest:
    one = FetchPartition(0, fetch_offset=offset, partition_max_bytes=max_bytes)
    fields = {"max_wait_ms": 0, "min_bytes": 1, **changes}
    return FetchRequest(topics=[FetchTopic("t", partitions=[one])], **fields)


async def fetched(client: Client, version: int, offset: int, max_bytes: int) -> Seen:
    answer = await client.ask(1, version, request(offset, max_bytes))
    one = answer.responses[0].partitions[0]
    assert one.error_code == 0
    groups = parse_message_set(bytes(one.records), max_bytes=100_000) if one.records else []
    values = [value or b"" for group in groups for *_, value in group.messages]
    # Only order and values are looked at: a message set of version 1 on has relative offsets inside of wrappers.
    return [(-1, value) for value in values]


@pytest.mark.parametrize("version", [0, 1, 2, 3])
@pytest.mark.parametrize("codec", [0, 1])
async def test_old_fetches_hide_what_is_open_or_aborted(client: Client, version: int, codec: int) -> None:
    log = await made(client, codec)
    a_bit_of_each(log)
    offset, seen = 0, []
    for at, value in log.seen():
        # What is asked for first comes, whatever lies hidden between.
        got = await fetched(client, version, offset, 10_000)
        assert (-1, value) in got
        assert {shown for _, shown in got} <= {shown for _, shown in log.seen()}
        seen.append((at, value))
        offset = at + 1
    assert seen == log.seen()
    for beyond in range(offset, log.end_offset + 1):
        assert await fetched(client, version, beyond, 10_000) == []


@pytest.mark.parametrize("version", [0, 3])
async def test_an_old_long_poll_waits_for_the_end_of_a_transaction(client: Client, version: int) -> None:
    log = await made(client)
    log.write(1, "x" * 500)
    waiting = asyncio.ensure_future(client.ask(1, version, request(0, 10_000, max_wait_ms=20_000)))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not waiting.done()
    log.end(1, commit=True)
    answer = await asyncio.wait_for(waiting, 20)
    assert len(answer.responses[0].partitions[0].records) > 500


@pytest.mark.parametrize(("version", "isolation"), [(0, 0), (1, 0), (2, 1), (2, 0), (7, 1), (7, 0)])
async def test_the_end_is_the_last_stable_offset_unless_a_client_asks_for_more(
    client: Client, version: int, isolation: int
) -> None:
    log = await made(client)
    a_bit_of_each(log)
    one = ListOffsetsPartition(0, -1, -1, 1)
    asked = ListOffsetsRequest(-1, isolation, [ListOffsetsTopic("t", [one])])
    (got,) = (await client.ask(2, version, asked)).topics[0].partitions
    end = log.end_offset if version >= 2 and not isolation else log.stable
    assert (got.old_style_offsets if version == 0 else [got.offset]) == [end]


async def test_newer_fetches_keep_kafka_s_rules(client: Client) -> None:
    log = await made(client)
    a_bit_of_each(log)
    for isolation, aborted in ((0, False), (1, True)):
        answer = await client.ask(1, 4, request(0, 10_000, isolation_level=isolation))
        one = answer.responses[0].partitions[0]
        assert (one.last_stable_offset, one.high_watermark) == (log.stable, log.end_offset)
        assert bool(one.aborted_transactions) is aborted
