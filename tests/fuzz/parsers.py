"""Every parser as a function of bytes that may raise typed errors only, with inputs that it likes.

A new parser is one entry in `PARSERS`.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple
from uuid import UUID
from zlib import crc32

from crc32c import crc32c

from app.errors import Problem
from app.native.produce_body import ProduceBody
from app.native.streams.cursor import CursorError, CursorWriter, Position, read_cursor
from core.errors import BrokerError
from core.kafka07.messages import encode_message, parse_messages
from core.line_protocol.codec import LineError
from core.line_protocol.codec import parse as parse_line
from core.log.checkpoint import decode_epochs, decode_offsets, encode_epochs, encode_offsets
from core.protocol import consumer_protocol
from core.protocol.apis import APIS
from core.protocol.codec import decode_request, encode_request
from core.protocol.header import decode_request_header, encode_request_header
from core.protocol.primitives import ProtocolError
from core.records.batch import batches, build_batch, check_crc, read_records
from core.records.conversion import up_convert
from core.records.message_set import encode_plain, wrap
from core.records.record import NewRecord
from core.records.validation import validate_produce
from core.topic_config import TopicConfig, parse_topic_config
from core.types import TopicPartition
from tests.core.log.shelf import Shelf, append, records, values
from tests.core.protocol.samples import Maker

LIMIT = 1 << 20
_CRC_END = 21
NOW = 1_700_000_000_000
TOPIC_ID = UUID(int=77)


class Parser(NamedTuple):
    """A parser: good inputs, the function, and the errors that it may raise."""

    name: str
    samples: Callable[[], list[bytes]]
    parse: Callable[[bytes], object]
    errors: tuple[type[BaseException], ...]
    # How costly one input is, relative to the others: it gets the fewer of them.
    weight: int = 1


# --- Kafka's protocol ---------------------------------------------------------------------------------------


@cache
def kafka_requests() -> tuple[bytes, ...]:
    """Frames without their size: one of each API and version."""
    found = []
    for key, api in sorted(APIS.items()):
        for version in range(api.min_version, api.max_version + 1):
            maker = Maker(key * 100 + version, longest=200)
            head = encode_request_header(key, version, 7, "fuzz")
            found.append(head + bytes(encode_request(key, version, maker.message(api.request_type, version))))
    return tuple(found)


def _kafka_request(data: bytes) -> None:
    header, position = decode_request_header(memoryview(data))
    api = APIS.get(header.api_key)
    if api is not None and api.min_version <= header.api_version <= api.max_version:
        decode_request(header.api_key, header.api_version, memoryview(data), position)


def _group_blobs() -> list[bytes]:
    maker = Maker(5, longest=200)
    found = []
    for version in range(consumer_protocol.NEWEST + 1):
        subscription = maker.message(consumer_protocol.Subscription, version)
        assignment = maker.message(consumer_protocol.Assignment, version)
        found.append(consumer_protocol.encode_subscription(subscription, version))  # type: ignore[arg-type]
        found.append(consumer_protocol.encode_assignment(assignment, version))  # type: ignore[arg-type]
    return found


def _group_blob(data: bytes) -> None:
    for decode in (consumer_protocol.decode_subscription, consumer_protocol.decode_assignment):
        try:
            decode(data)
        except ProtocolError:
            continue


# --- records ------------------------------------------------------------------------------------------------


def _batches() -> list[bytes]:
    some = [NewRecord(b"k%d" % i, b"v" * 30, (("h", b"x"), ("n", None))) for i in range(5)]
    some.append(NewRecord(None, None, (), 5))
    found = [bytes(build_batch(some, now_ms=NOW, codec=codec)) for codec in range(5)]
    found.append(
        bytes(build_batch(some, now_ms=NOW, producer_id=9, producer_epoch=0, base_sequence=2**31 - 3))
    )
    return [*found, found[0] + found[0]]


def _batch(data: bytes) -> None:
    buffer = bytearray(data)
    if len(buffer) > _CRC_END and buffer[-1] & 1:
        # A checksum that fits, for half of them, or hardly any would get past it.
        size = int.from_bytes(buffer[8:12], "big") + 12
        buffer[_CRC_END - 4 : _CRC_END] = crc32c(bytes(buffer[_CRC_END:size])).to_bytes(4, "big")
    compacted = parse_topic_config({"cleanup.policy": "compact", "compression.type": "zstd"})
    for config in (TopicConfig(), compacted):
        try:
            validate_produce(memoryview(bytearray(buffer)), config, now_ms=NOW, max_decompressed_bytes=LIMIT)
        except BrokerError:
            continue


def _records(data: bytes) -> None:
    """Records after a checksum that is not checked: what a disk may hold."""
    for position, header in batches(memoryview(data)):
        check_crc(data, position, header)
        read_records(memoryview(data), position, header, max_bytes=LIMIT)


def _message_sets() -> list[bytes]:
    fields = [(i, NOW, b"key", b"value %d" % i) for i in range(4)] + [(4, NOW, None, None)]
    found = []
    for magic in (0, 1):
        plain = encode_plain(magic, 0, fields)
        found.append(plain)
        found += [wrap(magic, codec, 0, 4, NOW, plain) for codec in (1, 2, 3)]
    return found


def _message_set(data: bytes) -> None:
    up_convert(data, TopicConfig(), now_ms=NOW, max_bytes=LIMIT)


def _kafka07_messages() -> list[bytes]:
    found = []
    for magic in (0, 1):
        plain = encode_message(magic, b"one") + encode_message(magic, b"")
        found.append(plain)
    return [*found, *(encode_message(1, b"inner" * 9, codec) for codec in (1, 2))]


def _kafka07(data: bytes) -> None:
    parse_messages(data, max_bytes=LIMIT)


# --- HTTP ---------------------------------------------------------------------------------------------------

BODIES = [
    b'{"records": [{"key": "a", "value": {"x": [1, 2.5, null]}, "headers": [{"name": "h", "value": "v"}]}]}',
    b'{"key": null, "value": "AAEC", "value_encoding": "base64", "partition": 0, "timestamp": 5}',
    b'{"value": 1, "timestamp": "2025-01-31T12:00:00.5Z"}\n{"value": "\\ud83d\\ude00"}\n',
    b'{"records": [{"value": "x", "value_encoding": "json"}, {}]}',
]
_body = ProduceBody(max_depth=50, max_records=100)


def _produce_body(data: bytes) -> None:
    for parse in (_body.from_json, _body.from_ndjson):
        try:
            parse(data)
        except Problem as problem:
            assert problem.status < 500, problem


def _cursors() -> list[bytes]:
    positions = [Position((5, 5, 5, 9, 2**40), 2), Position((0,), 0)]
    found = [CursorWriter(TOPIC_ID, None).text(position) for position in positions]
    found.append(CursorWriter(TOPIC_ID, (1, 7)).text(Position((3, 4), 1)))
    # The checksum is computed again for each input, or hardly any would get past it.
    return [cursor[:-9] for cursor in found]


def _cursor(data: bytes) -> None:
    for text in (data, b"%b.%08x" % (data, crc32(data))):
        try:
            read_cursor(text.decode("latin-1"), TOPIC_ID, 100)
        except CursorError:
            continue


# --- the line protocol --------------------------------------------------------------------------------------

LINES = [
    b"V1|1|PING|",
    b"V1|2|PRODUCE|t 0 1 hello world",
    b"V1|3|CONSUME|t 0 0 10",
    b"V1|4|JOIN|g m t 10000",
    b"V1|5|COMMIT|g m 1 t 0 5",
    b"V1|6|CREATE|t 3",
    b"V1|7|HELP|",
]


# --- files --------------------------------------------------------------------------------------------------


def _checkpoints() -> list[bytes]:
    return [
        encode_offsets({TopicPartition("t", 0): 5, TopicPartition("other", 12): 2**40}),
        encode_epochs([(0, 0), (3, 17)]),
    ]


def _checkpoint(data: bytes) -> None:
    for decode in (decode_offsets, decode_epochs):
        try:
            decode(data)
        except ValueError:
            continue


class _LogFiles:
    """A log on disk; each input replaces one of its small files, and the log must be as before."""

    def __init__(self) -> None:
        self.root = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
        self.shelf = Shelf(self.root, segment_bytes=600)
        log = self.shelf.open()
        for i in range(12):
            append(
                log,
                records(f"value {i}" * 4, f"more {i}"),
                producer_id=3,
                producer_epoch=0,
                base_sequence=2 * i,
            )
        self.values = values(log)
        self.clean_end = log.offsets.log_end_offset
        self.shelf.reopen_cleanly(log).close()
        self.originals = {
            path: path.read_bytes()
            for path in sorted(self.shelf.directory.iterdir())
            if path.suffix != ".log" and path.is_file()
        }

    def samples(self) -> list[bytes]:
        """Each file, with its number in front."""
        return [bytes([number]) + data for number, data in enumerate(self.originals.values())]

    def check(self, data: bytes) -> None:
        """Open the log with that file changed."""
        if not data:
            return
        path = list(self.originals)[data[0] % len(self.originals)]
        path.write_bytes(data[1:])
        try:
            # After a clean stop the files are believed as far as they can be, after a crash the log is read.
            for known in ({"recovery_point": self.clean_end, "clean": True}, {}):
                log = self.shelf.open(**known)  # type: ignore[arg-type]
                assert values(log) == self.values, path.name
                log.close()
        finally:
            for known in set(self.shelf.directory.iterdir()) - set(self.originals):
                if known.suffix != ".log" and known.is_file():
                    known.unlink()
            for one, original in self.originals.items():
                one.write_bytes(original)

    def close(self) -> None:
        """Remove the directory."""
        shutil.rmtree(self.root, ignore_errors=True)


def parsers() -> Iterator[Parser]:
    """All of them; files of logs live as long as the iteration."""
    typed = (BrokerError, ProtocolError)
    yield Parser("kafka-request", lambda: list(kafka_requests()), _kafka_request, (ProtocolError,))
    yield Parser("group-blob", _group_blobs, _group_blob, ())
    yield Parser("record-batch", _batches, _batch, typed)
    yield Parser("records", _batches, _records, typed)
    yield Parser("message-set", _message_sets, _message_set, typed)
    yield Parser("kafka07-messages", _kafka07_messages, _kafka07, typed)
    yield Parser("produce-body", lambda: BODIES, _produce_body, ())
    yield Parser("cursor", _cursors, _cursor, ())
    yield Parser("line", lambda: LINES, parse_line, (LineError,))
    yield Parser("checkpoint", _checkpoints, _checkpoint, ())
    log = _LogFiles()
    try:
        yield Parser("log-files", log.samples, log.check, (), weight=20)
    finally:
        log.close()
