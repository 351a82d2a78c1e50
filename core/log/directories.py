"""The names of partition directories."""

from __future__ import annotations

import os

from core.log.checkpoint import PARTITION_METADATA
from core.log.segment import LOG_SUFFIX
from core.types import TopicPartition

DELETE_SUFFIX = "-delete"
# A partition of no known topic that was not deleted either. The broker never changes such a directory again.
STRAY_SUFFIX = "-stray"
# The longest file name on all usual file systems, in bytes.
NAME_MAX = 255


def partition_of(name: str) -> TopicPartition | None:
    """Return the partition whose directory has this name; None if it is no such name."""
    topic, dash, number = name.rpartition("-")
    if not dash or not topic or not number.isascii() or not number.isdigit() or str(int(number)) != number:
        return None
    return TopicPartition(topic, int(number))


def set_aside(name: str, unique: str, suffix: str) -> str:
    """Return the name of a directory that is out of the way: `<topic>-<partition>.<hex><suffix>`, cut to fit."""
    ending = f".{unique}{suffix}"
    return name[: NAME_MAX - len(ending)] + ending


def is_ours(path: str) -> bool:
    """Return whether a directory was made by a broker: it has its metadata file, or nothing in it yet."""
    with os.scandir(path) as entries:
        names = {entry.name for entry in entries}
    return not names or PARTITION_METADATA in names


def holds_records(path: str) -> bool:
    """Return whether there is anything in the segments of a partition's directory."""
    with os.scandir(path) as entries:
        return any(entry.name.endswith(LOG_SUFFIX) and entry.stat().st_size for entry in entries)
