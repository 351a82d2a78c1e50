"""Message sets of Produce v0–2: small ones at once, large and compressed ones beside the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import Any

import pytest

from core.broker.broker import Broker
from core.listeners.kafka import produce_conversion
from core.protocol.codec import encode_request
from core.protocol.header import encode_request_header
from core.records.compression import GZIP
from core.records.message_set import encode_plain, wrap
from core.types import TopicPartition

from .conftest import Client, produce_request

T0 = TopicPartition("t", 0)


def plain(*values: bytes) -> bytes:
    return encode_plain(0, 0, [(i, -1, None, value) for i, value in enumerate(values)])


def wrapped(*values: bytes) -> bytes:
    return wrap(0, GZIP, 0, len(values) - 1, -1, plain(*values))


def frame(data: bytes, acks: int = 1) -> bytearray:
    head = encode_request_header(0, 0, 7, "old")
    return bytearray(head + encode_request(0, 0, produce_request("t", data, acks=acks)))


async def values(broker: Broker) -> list[bytes | None]:
    found = await broker.records.read(T0, 0, max_bytes=10_000_000, max_records=1000)
    return [record.value for record in found.records]


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """In which thread each conversion ran."""
    seen: list[int] = []
    convert = produce_conversion.up_convert

    def watched(*args: Any, **options: Any) -> Any:
        converted = convert(*args, **options)
        seen.append(threading.get_ident())
        return converted

    monkeypatch.setattr(produce_conversion, "up_convert", watched)
    return seen


@pytest.mark.parametrize(
    ("data", "beside"),
    [(plain(b"a", b"b"), False), (wrapped(b"a", b"b"), True), (plain(b"a", b"b" * 300_000), True)],
    ids=["small", "compressed", "large"],
)
async def test_what_may_take_long_is_converted_in_a_thread(
    client: Client, broker: Broker, threads: list[int], data: bytes, beside: bool
) -> None:
    await client.create("t")
    answer = client.session.handle(memoryview(frame(data)))
    assert isinstance(answer, list) != beside
    if not isinstance(answer, list):
        assert answer is not None
        await answer
    assert [thread != threading.get_ident() for thread in threads] == [beside]
    assert [value and value[:1] for value in await values(broker)] == [b"a", b"b"]


async def test_the_request_s_buffer_may_be_used_again_meanwhile(client: Client, broker: Broker) -> None:
    await client.create("t")
    data = frame(wrapped(b"a", b"b"))
    answer = client.session.handle(memoryview(data))
    data[:] = bytes(len(data))
    assert answer is not None and not isinstance(answer, list)
    await answer
    assert await values(broker) == [b"a", b"b"]


async def test_what_was_read_is_written_though_the_client_and_then_the_broker_stop(
    client: Client, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish = produce_conversion.MessageSets.finish

    async def slowly(sets: produce_conversion.MessageSets, conversions: Any) -> None:
        await asyncio.sleep(0.3)
        await finish(sets, conversions)

    monkeypatch.setattr(produce_conversion.MessageSets, "finish", slowly)
    await client.create("t")
    answer = client.session.handle(memoryview(frame(wrapped(b"a"), acks=0)))
    assert answer is not None and not isinstance(answer, list)
    task = asyncio.get_running_loop().create_task(answer)
    await asyncio.sleep(0)
    task.cancel()  # what a connection does when it is lost
    with contextlib.suppress(asyncio.CancelledError):
        await task
    await broker.close()
    after = Broker(broker.config, broker.clock)
    await after.open()
    assert await values(after) == [b"a"]
    await after.close()


async def test_partitions_of_one_request_fail_alone(client: Client, broker: Broker) -> None:
    await client.create("t")
    request = produce_request("t", wrapped(b"a"))
    good, bad = request.topic_data[0].partition_data[0], produce_request("t", wrapped(b"b"), partition=9)
    request.topic_data[0].partition_data = [*bad.topic_data[0].partition_data, good]
    answer = await client.ask(0, 0, request)
    codes = {one.index: one.error_code for one in answer.responses[0].partition_responses}
    assert codes == {9: 3, 0: 0}
    assert await values(broker) == [b"a"]
