"""The small text files next to the logs, in Kafka's own formats, so that Kafka's tools read them.

    offset checkpoints    version 0, number of lines, then `topic partition offset`; one file per data directory
    epoch checkpoint      version 0, number of lines, then `epoch start-offset`; one file per partition
    partition.metadata    `version: 0` and `topic_id: <base64url of the UUID>`

Each file is replaced as a whole. An unreadable file counts as absent: a longer read of the log finds its contents
again. Only the log start offset cannot be found again; it is then the start of the first segment.
"""

from __future__ import annotations

import base64
import binascii
import uuid
from collections.abc import Iterable, Mapping

from core.log import files
from core.types import TopicPartition

# Below this offset a log is known to be on the disk and undamaged. Recovery starts there.
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
# The first offset that may be read, where it is not the start of a segment (DeleteRecords).
LOG_START_OFFSETS = "log-start-offset-checkpoint"
# The first offset that compaction has not seen yet.
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
# Present only after a clean shutdown, and deleted before anything is written again.
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
LEADER_EPOCHS = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"

VERSION = 0
CLEAN_SHUTDOWN_TEXT = b'{"version":0,"brokerEpoch":-1}'


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    """Return an offset checkpoint as text."""
    lines = [f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()]
    return "\n".join([str(VERSION), str(len(lines)), *lines, ""]).encode()


def decode_offsets(data: bytes) -> dict[TopicPartition, int]:
    """Return the offsets of an offset checkpoint; ValueError if it is torn or not one."""
    result = {}
    for line in _lines(data):
        topic, partition, offset = line.split(" ")
        result[TopicPartition(topic, _natural(partition))] = _natural(offset)
    return result


def read_offsets(path: str) -> dict[TopicPartition, int] | None:
    """Return the offsets in a checkpoint file; None if there is none that can be read."""
    data = files.read_whole(path)
    if data is None:
        return None
    try:
        return decode_offsets(data)
    except ValueError:
        return None


def encode_epochs(epochs: Iterable[tuple[int, int]]) -> bytes:
    """Return an epoch checkpoint as text, of (epoch, start offset)."""
    lines = [f"{epoch} {offset}" for epoch, offset in epochs]
    return "\n".join([str(VERSION), str(len(lines)), *lines, ""]).encode()


def decode_epochs(data: bytes) -> list[tuple[int, int]]:
    """Return the (epoch, start offset) pairs of an epoch checkpoint, both rising; ValueError if it is not one."""
    result: list[tuple[int, int]] = []
    for line in _lines(data):
        epoch, offset = (_natural(part) for part in line.split(" "))
        if result and (epoch <= result[-1][0] or offset < result[-1][1]):
            raise ValueError("epochs must rise")
        result.append((epoch, offset))
    return result


def encode_partition_metadata(topic_id: uuid.UUID) -> bytes:
    """Return the partition.metadata file of a partition of the topic with this id."""
    text = base64.urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")
    return f"version: {VERSION}\ntopic_id: {text}".encode()


def read_topic_id(path: str) -> uuid.UUID | None:
    """Return the topic id in a partition.metadata file; None if there is none that can be read."""
    data = files.read_whole(path)
    try:
        fields = dict(line.split(": ", 1) for line in (data or b"").decode().splitlines() if line)
        return uuid.UUID(bytes=base64.urlsafe_b64decode(fields["topic_id"] + "=="))
    except (ValueError, KeyError, binascii.Error):
        return None


def _lines(data: bytes) -> list[str]:
    """Return the lines after the version and the count, which must both be right."""
    lines = data.decode().split("\n")
    if len(lines) < 3 or lines[-1] or _natural(lines[0]) != VERSION or _natural(lines[1]) != len(lines) - 3:
        raise ValueError("not a whole checkpoint")
    return lines[2:-1]


def _natural(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise ValueError(f"not a number: {text!r}")
    return int(text)
