"""Nothing is decompressed for a client that has not logged in, or has no right to write."""

from __future__ import annotations

import gzip
from typing import Any

import pytest

import core.records.batch as batch
import core.records.message_set as message_set
from core.errors import ErrorCode
from core.listeners.connection import RefusedError
from core.listeners.kafka.dispatch import HANDLERS
from core.protocol.codec import encode_request
from core.protocol.header import encode_request_header
from core.protocol.traits import names_topics_by_id, produce_magic
from core.records.batch import build_batch
from core.records.compression import GZIP, compress
from core.records.message_set import encode_message, encode_plain
from core.records.record import NewRecord
from core.security.acl import Operation, ResourceType
from tests.core.listeners.kafka.conftest import Client, produce_request

from .conftest import World


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The codecs of what was decompressed."""
    codecs: list[int] = []
    for module in (batch, message_set):
        original = module.decompress

        def noting(codec: int, *arguments: Any, original: Any = original) -> Any:
            codecs.append(codec)
            return original(codec, *arguments)

        monkeypatch.setattr(module, "decompress", noting)
    return codecs


def compressed(magic: int) -> bytes:
    if magic == 2:
        return bytes(build_batch([NewRecord(value=b"v" * 1000)], now_ms=1, codec=GZIP))
    inner = encode_plain(magic, 0, [(0, 1 if magic else -1, None, b"v" * 1000)])
    return encode_message(magic, 0, GZIP, 1, None, bytes(compress(GZIP, inner)))


async def test_a_produce_that_is_denied_is_not_decompressed(world: World, opened: list[int]) -> None:
    await world.add("mallory")
    # With a codec of its own each batch has to be opened.
    topic = await world.broker.topics.create("t", configs={"compression.type": "lz4"})
    low, high = HANDLERS[0].versions
    rounds = []
    for allowed in (False, True):
        if allowed:
            await world.allow("mallory", Operation.WRITE, ResourceType.TOPIC, "t")
        client = await world.kafka("mallory")
        for version in range(low, high + 1):
            request = produce_request("t", compressed(produce_magic(version)))
            if names_topics_by_id(0, version):
                request.topic_data[0].topic_id = topic.topic_id
            answer = await client.ask(0, version, request)
            code = answer.responses[0].partition_responses[0].error_code
            assert code == (0 if allowed else ErrorCode.TOPIC_AUTHORIZATION_FAILED), version
        rounds.append(len(opened))
    assert rounds[0] == 0
    assert rounds[1] >= high - low + 1, "with the right each of them is looked into"


async def test_nothing_is_decompressed_before_a_login(world: World, opened: list[int]) -> None:
    await world.broker.topics.create("t")
    for version in range(*HANDLERS[0].versions):
        frame = encode_request_header(0, version, 1, "c")
        frame += encode_request(0, version, produce_request("t", compressed(produce_magic(version))))
        with pytest.raises(RefusedError):
            await Client(world.listener).raw(frame)
    assert opened == []


@pytest.mark.parametrize("coding", ["gzip", "br", "zstd", "deflate", "gzip, gzip"])
@pytest.mark.parametrize("path", ["/api/v1/topics/t/records", "/topics/t"])
async def test_a_body_with_a_coding_is_refused(world: World, coding: str, path: str) -> None:
    await world.broker.topics.create("t")
    bomb = gzip.compress(b'{"records": []}' + b" " * 1_000_000)
    kind = "application/json" if path.startswith("/api") else "application/vnd.kafka.json.v2+json"
    headers = {"content-type": kind, "content-encoding": coding}
    answer = await world.http("admin", "POST", path, bomb, **headers)
    assert answer.status_code == 415, answer.text
