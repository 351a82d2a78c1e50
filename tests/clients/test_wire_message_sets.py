"""Hostile message sets of a client of 2014: refused by a code, nothing kept, memory bounded, the connection fine."""

from __future__ import annotations

import struct
from collections.abc import Callable

import psutil
import pytest

from core.errors import ErrorCode
from core.protocol.apis import APIS
from core.records.batch import batches
from core.records.compression import CODECS, compress
from core.records.message_set import encode_message, parse_message_set
from tests.broker_process import BrokerProcess
from tests.clients.wire import FETCH, PRODUCE, Wire, batch, fetch_request, produce_request

MIB = 1 << 20
# More than the 64 MiB that the broker will decompress for one set. Snappy makes 20 bytes of one at the most.
BOMBS = {"gzip": 192 * MIB, "snappy": 80 * MIB, "lz4": 192 * MIB}
# Row N6 of tests/README.md.
MAX_GROWTH = 64 * MIB
MESSAGE_SET_CODECS = ("gzip", "snappy", "lz4")
MAGIC = {0: 0, 1: 0, 2: 1}
CORRUPT, REFUSED = ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD


def plain(magic: int, value: bytes | None = b"v") -> bytes:
    return encode_message(magic, 0, 0, 0, None, value)


def wrapped(magic: int, codec: str, inner: bytes) -> bytes:
    number = CODECS[codec]
    # LZ4 frames of magic 0 have a checksum that is wrong on purpose; a right one is taken as well.
    return encode_message(magic, 0, number, 0, None, compress(number, inner))


def with_size(magic: int, size: int) -> bytes:
    data = bytearray(plain(magic))
    data[8:12] = struct.pack(">i", size)
    return bytes(data)


def with_wrong_crc(magic: int) -> bytes:
    data = bytearray(plain(magic))
    data[12] ^= 0x80
    return bytes(data)


# What is wrong → the set of a magic, and the code that it is refused with.
LIES: dict[str, tuple[Callable[[int], bytes], int]] = {
    "a negative size": (lambda magic: with_size(magic, -1), CORRUPT),
    "the smallest size": (lambda magic: with_size(magic, -(2**31)), CORRUPT),
    "more than it holds": (lambda magic: with_size(magic, 1000), CORRUPT),
    "the largest size": (lambda magic: with_size(magic, 2**31 - 1), CORRUPT),
    "a wrong checksum": (with_wrong_crc, CORRUPT),
    "a cut message": (lambda magic: plain(magic)[:-1], CORRUPT),
    "a good message and a cut one": (lambda magic: plain(magic) + plain(magic)[:20], CORRUPT),
    "a wrong checksum inside": (lambda magic: wrapped(magic, "gzip", with_wrong_crc(magic)), CORRUPT),
    "a negative size inside": (lambda magic: wrapped(magic, "gzip", with_size(magic, -5)), CORRUPT),
    "more inside than there is": (lambda magic: wrapped(magic, "gzip", with_size(magic, 10_000)), CORRUPT),
    "no compressed data": (lambda magic: encode_message(magic, 0, 1, 0, None, b"not gzip"), CORRUPT),
    "a wrapper without value": (lambda magic: encode_message(magic, 0, 1, 0, None, None), REFUSED),
    "an empty wrapper": (lambda magic: wrapped(magic, "gzip", b""), REFUSED),
    "magic 2": (lambda magic: batch(), REFUSED),
    "magic 2 after a good message": (lambda magic: plain(magic) + batch(), REFUSED),
    "magic 2 inside": (lambda magic: wrapped(magic, "gzip", batch()), REFUSED),
    "the other magic inside": (lambda magic: wrapped(magic, "gzip", plain(1 - magic)), REFUSED),
    "wrappers without end": (lambda magic: nested(magic, 50), REFUSED),
}


def nested(magic: int, depth: int) -> bytes:
    data = plain(magic)
    for _ in range(depth):
        data = wrapped(magic, "gzip", data)
    return data


@pytest.fixture(scope="module")
def topic(broker: BrokerProcess) -> str:
    with Wire(broker.kafka_address) as wire:
        wire.create_topic("hostile")
    return "hostile"


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("lie", LIES)
def test_a_set_that_lies_is_refused_whole(wire: Wire, topic: str, lie: str, version: int) -> None:
    make, code = LIES[lie]
    answer = wire.produce(topic, make(MAGIC[version]), version=version)
    assert (answer.error_code, answer.base_offset) == (code, -1)
    assert wire.list_offset(topic, -1).offset == 0, "nothing was kept, and the connection lives on"


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("codec", MESSAGE_SET_CODECS)
@pytest.mark.parametrize("version", [0, 2])
def test_a_bomb_is_refused_within_its_bounds(
    wire: Wire, broker: BrokerProcess, topic: str, version: int, codec: str, depth: int
) -> None:
    data = _bomb(MAGIC[version], codec)
    for _ in range(depth - 1):
        data = wrapped(MAGIC[version], codec, data)
    process = psutil.Process(broker.pid)
    before = process.memory_info().rss
    for _ in range(3):
        assert wire.produce(topic, data, version=version).error_code == REFUSED
    assert process.memory_info().rss - before < MAX_GROWTH
    assert wire.list_offset(topic, -1).offset == 0


_bombs: dict[tuple[int, str], bytes] = {}


def _bomb(magic: int, codec: str) -> bytes:
    if (magic, codec) not in _bombs:
        _bombs[magic, codec] = wrapped(magic, codec, plain(magic, bytes(BOMBS[codec])))
    return _bombs[magic, codec]


def test_old_fetches_never_get_a_format_that_their_version_does_not_know(wire: Wire) -> None:
    """Every version below the newest, over a log with every codec, format and kind of record that there is."""
    topic = "every-format"
    wire.create_topic(topic)
    count = 0
    for codec in CODECS.values():
        assert wire.produce(topic, batch([b"a", None, b"c" * 500], key=b"k", codec=codec)).error_code == 0
        count += 3
    for version, magic in MAGIC.items():
        answer = wire.call(PRODUCE, produce_request(topic, wrapped(magic, "snappy", plain(magic))), version)
        assert answer.responses[0].partition_responses[0].error_code == 0
        count += 1
    for version in range(APIS[FETCH].max_version):
        if version >= 13:  # by the topic's id
            break
        (topics,) = wire.call(FETCH, fetch_request([(topic, 0, 0)]), version).responses
        records = bytes(topics.partitions[0].records)
        if version < 4:
            groups = parse_message_set(records, max_bytes=MIB)
            assert sum(len(group.messages) for group in groups) == count
            assert {group.codec for group in groups} <= {0, 1, 2, 3}
            assert records[16] == (0 if version < 2 else 1)
        else:
            headers = [header for _, header in batches(records)]
            assert sum(header.record_count for header in headers) == count
            assert (4 in {header.codec for header in headers}) == (version >= 10)
