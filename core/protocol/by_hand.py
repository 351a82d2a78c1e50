"""The hot shapes, written by hand: what nearly every Produce and Fetch looks like.

Each function here knows one shape and hands everything else, and everything wrong, to the compiled function
of the same message and version. So there is one place that knows all rules and names all errors, and a test
holds both to the same bytes.

    Produce request     v3+     no transaction, one topic, one partition
    Produce response    v5+     one topic, one partition, nothing refused
    Fetch response      v12+    no aborted transactions, no hints about leaders
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from struct import Struct as Layout
from typing import Any

from core.protocol.encoding import put_records, records_size
from core.protocol.messages import fetch, produce
from core.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from core.protocol.primitives import NIL, ProtocolError, rest_of_uvarint, uuid_of, uvarint
from core.protocol.schema import Piece
from core.types import FileSlice

Decoder = Callable[[memoryview, int, int, int], tuple[Any, int]]
Encoder = Callable[[Any], list[Piece]]

_UNREADABLE = (ProtocolError, struct.error, IndexError, UnicodeDecodeError)
_UNWRITABLE = (struct.error, AttributeError, TypeError, UnicodeEncodeError)


# --- Produce request -----------------------------------------------------------------------------------------
#
#   v3    int16 −1 (transactional id)  int16 acks  int32 timeout  int32 1  string topic
#         int32 1  int32 partition  int32 size  records
#   v9    uint8 0  int16 acks  int32 timeout  uvarint 2  compact string topic
#         uvarint 2  int32 partition  uvarint size + 1  records  three empty tag sections
#   v13   the same with 16 bytes of topic id in place of the name

_HEAD_3 = Layout(">hhiih")
_PARTITION_3 = Layout(">iii")
_HEAD_9 = Layout(">BhiBB")
_PARTITION_9 = Layout(">BiB")
_HEAD_13 = Layout(">BhiB16sBiB")


def produce_request_decoder(version: int, general: Decoder) -> Decoder:
    """The decoder of Produce requests; records are views into the buffer."""
    if version < 3:
        return general
    usual = _usual_produce_13 if version >= 13 else _usual_produce_9 if version >= 9 else _usual_produce_3

    def decode(buffer: memoryview, position: int, size: int, left: int) -> tuple[Any, int]:
        try:
            message = usual(buffer, position, size)
        except _UNREADABLE:
            message = None
        return general(buffer, position, size, left) if message is None else (message, size)

    return decode


def _usual_produce_3(buffer: memoryview, position: int, size: int) -> ProduceRequest | None:
    transaction, acks, timeout, topics, length = _HEAD_3.unpack_from(buffer, position)
    name = position + 14
    end = name + length
    partitions, index, records = _PARTITION_3.unpack_from(buffer, end)
    if transaction != -1 or not topics == partitions == 1 or length < 0 or end + 12 + records != size:
        return None
    data = [PartitionProduceData(index, buffer[end + 12 : size])]
    return ProduceRequest(None, acks, timeout, [TopicProduceData(str(buffer[name:end], "utf-8"), NIL, data)])


def _usual_produce_9(buffer: memoryview, position: int, size: int) -> ProduceRequest | None:
    transaction, acks, timeout, topics, length = _HEAD_9.unpack_from(buffer, position)
    if transaction or topics != 2 or not 0 < length < 128:
        return None
    name = position + 9
    end = name + length - 1
    partitions, index, records = _PARTITION_9.unpack_from(buffer, end)
    start = end + 6
    if records > 127:
        records, start = rest_of_uvarint(buffer, start, records)
    stop = start + records - 1
    if partitions != 2 or not records or not _ends(buffer, stop, size):
        return None
    data = [PartitionProduceData(index, buffer[start:stop])]
    return ProduceRequest(None, acks, timeout, [TopicProduceData(str(buffer[name:end], "utf-8"), NIL, data)])


def _usual_produce_13(buffer: memoryview, position: int, size: int) -> ProduceRequest | None:
    transaction, acks, timeout, topics, topic_id, partitions, index, records = _HEAD_13.unpack_from(
        buffer, position
    )
    start = position + 30
    if records > 127:
        records, start = rest_of_uvarint(buffer, start, records)
    stop = start + records - 1
    if transaction or not topics == partitions == 2 or not records or not _ends(buffer, stop, size):
        return None
    data = [PartitionProduceData(index, buffer[start:stop])]
    return ProduceRequest(None, acks, timeout, [TopicProduceData("", uuid_of(topic_id), data)])


def _ends(buffer: memoryview, stop: int, size: int) -> bool:
    """Whether nothing follows but the empty tag sections of partition, topic and request."""
    return stop + 3 == size and not (buffer[stop] or buffer[stop + 1] or buffer[stop + 2])


# --- Produce response ----------------------------------------------------------------------------------------
#
#   v5    int32 1  string topic  int32 1  int32 partition  int16 error  int64 offset, append time, log start
#         (v8: int32 0 record errors, int16 −1 message)  int32 throttle time
#   v9    the same, compact, with three empty tag sections

_COUNT_AND_LENGTH = Layout(">ih")
_TAIL_5 = Layout(">iihqqqi")
_TAIL_8 = Layout(">iihqqqihi")
_TAIL_9 = Layout(">BihqqqBBxxix")
_NO_LEADER = produce.PartitionProduceResponse().current_leader


def produce_response_encoder(version: int, general: Encoder) -> Encoder:
    """The encoder of Produce responses."""
    if version < 5:
        return general
    usual = _usual_answer_9(version >= 13) if version >= 9 else _usual_answer_5(version >= 8)

    def encode(message: produce.ProduceResponse) -> list[Piece]:
        try:
            (topic,) = message.responses
            (partition,) = topic.partition_responses
            if (
                partition.error_message is None
                and not partition.record_errors
                and partition.current_leader is _NO_LEADER
                and not message.node_endpoints
            ):
                return [usual(message, topic, partition)]
        except (ValueError, *_UNWRITABLE):  # not exactly one; or the general encoder says what is wrong
            pass
        return general(message)

    return encode


_Answer = Callable[
    [produce.ProduceResponse, produce.TopicProduceResponse, produce.PartitionProduceResponse], bytes
]


def _usual_answer_5(with_errors: bool) -> _Answer:
    def answer(
        message: produce.ProduceResponse,
        topic: produce.TopicProduceResponse,
        partition: produce.PartitionProduceResponse,
    ) -> bytes:
        name = topic.name.encode()
        numbers = (
            1,
            partition.index,
            partition.error_code,
            partition.base_offset,
            partition.log_append_time_ms,
            partition.log_start_offset,
        )
        head = _COUNT_AND_LENGTH.pack(1, len(name)) + name
        if with_errors:
            return head + _TAIL_8.pack(*numbers, 0, -1, message.throttle_time_ms)
        return head + _TAIL_5.pack(*numbers, message.throttle_time_ms)

    return answer


def _usual_answer_9(by_id: bool) -> _Answer:
    def answer(
        message: produce.ProduceResponse,
        topic: produce.TopicProduceResponse,
        partition: produce.PartitionProduceResponse,
    ) -> bytes:
        if by_id:
            head = b"\2" + topic.topic_id.bytes
        else:
            name = topic.name.encode()
            head = b"\2" + uvarint(len(name) + 1) + name
        return head + _TAIL_9.pack(
            2,
            partition.index,
            partition.error_code,
            partition.base_offset,
            partition.log_append_time_ms,
            partition.log_start_offset,
            1,
            0,
            message.throttle_time_ms,
        )

    return answer


# --- Fetch response ------------------------------------------------------------------------------------------
#
#   partition   int32 index  int16 error  int64 high watermark, last stable, log start
#               uvarint aborted transactions (0 null, 1 none)  int32 preferred replica
#               uvarint size + 1  records  one empty tag section

_FETCH_HEAD = Layout(">ihi")
_FETCHED = Layout(">ihqqqBi").pack
_FETCHED_2 = Layout(">ihqqqBiBB").pack  # with a size whose varint has two bytes: up to 16 KiB
_FETCHED_3 = Layout(">ihqqqBiBBB").pack  # three: up to 2 MiB
_USUAL = fetch.PartitionData()


def fetch_response_encoder(version: int, general: Encoder) -> Encoder:
    """The encoder of Fetch responses: bytes with the records between them, by reference."""
    if version < 12:
        return general
    by_id = version >= 13

    def encode(message: fetch.FetchResponse) -> list[Piece]:
        try:
            parts = _usual_fetch(message, by_id)
        except _UNWRITABLE:  # the general encoder says what is wrong
            parts = None
        return general(message) if parts is None else parts

    return encode


def _usual_fetch(message: fetch.FetchResponse, by_id: bool) -> list[Piece] | None:
    if message.node_endpoints:
        return None
    parts: list[Piece] = []
    out: bytes | bytearray = _FETCH_HEAD.pack(
        message.throttle_time_ms, message.error_code, message.session_id
    ) + uvarint(len(message.responses) + 1)
    for topic in message.responses:
        name = topic.topic.encode()
        out += topic.topic_id.bytes if by_id else uvarint(len(name) + 1) + name
        out += uvarint(len(topic.partitions) + 1)
        rest = _partitions(topic.partitions, parts, out)
        if rest is None:
            return None
        out = rest + b"\0"
    parts.append(out + b"\0")
    return parts


def _partitions(
    partitions: list[fetch.PartitionData], parts: list[Piece], out: bytes | bytearray
) -> bytes | bytearray | None:
    """Adds partitions behind `out`, and gives what is not in `parts` yet; None if one is not as usual."""
    diverging, leader, snapshot = _USUAL.diverging_epoch, _USUAL.current_leader, _USUAL.snapshot_id
    for partition in partitions:
        aborted = partition.aborted_transactions
        if (
            aborted
            or partition.diverging_epoch is not diverging
            or partition.current_leader is not leader
            or partition.snapshot_id is not snapshot
        ):
            return None
        records = partition.records
        size = records.length + 1 if type(records) is FileSlice else 0
        if 0x4000 <= size < 0x20_0000:
            # The arguments stand here twice, because a tuple of them costs a third of the gain.
            out += _FETCHED_3(
                partition.partition_index,
                partition.error_code,
                partition.high_watermark,
                partition.last_stable_offset,
                partition.log_start_offset,
                aborted is not None,
                partition.preferred_read_replica,
                size & 0x7F | 0x80,
                size >> 7 & 0x7F | 0x80,
                size >> 14,
            )
        elif 0x80 <= size < 0x4000:
            out += _FETCHED_2(
                partition.partition_index,
                partition.error_code,
                partition.high_watermark,
                partition.last_stable_offset,
                partition.log_start_offset,
                aborted is not None,
                partition.preferred_read_replica,
                size & 0x7F | 0x80,
                size >> 7,
            )
        else:
            out = _other(partition, parts, out if isinstance(out, bytearray) else bytearray(out))
            continue
        assert records is not None
        parts.append(out)
        parts.append(records)  # type: ignore[arg-type]
        out = b"\0"  # the empty tag section
    return out


def _other(partition: fetch.PartitionData, parts: list[Piece], out: bytearray) -> bytearray:
    """A partition without records, or with records of another kind or size."""
    out += _FETCHED(
        partition.partition_index,
        partition.error_code,
        partition.high_watermark,
        partition.last_stable_offset,
        partition.log_start_offset,
        partition.aborted_transactions is not None,
        partition.preferred_read_replica,
    )
    records = partition.records
    if records is None:
        out += b"\0\0"
        return out
    out += uvarint(records_size(records) + 1)
    out = put_records(parts, out, records)
    out.append(0)
    return out
