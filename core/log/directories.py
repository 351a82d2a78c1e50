"""The names of partition directories."""

from __future__ import annotations

import os

from core.log.checkpoint import PARTITION_METADATA
from core.types import TopicPartition

DELETE_SUFFIX = "-delete"
# What a file name may have at most, on all usual file systems.
NAME_MAX = 255


def partition_of(name: str) -> TopicPartition | None:
    """The partition whose directory has this name; None if it is no such name."""
    topic, dash, number = name.rpartition("-")
    if not dash or not topic or not number.isascii() or not number.isdigit() or str(int(number)) != number:
        return None
    return TopicPartition(topic, int(number))


def delete_name(name: str, unique: str) -> str:
    """The name of a directory that is to be removed: `<topic>-<partition>.<hex>-delete`, cut to fit."""
    ending = f".{unique}{DELETE_SUFFIX}"
    return name[: NAME_MAX - len(ending)] + ending


def is_ours(path: str) -> bool:
    """Whether a directory was made by a broker: it has its metadata file, or nothing in it yet."""
    with os.scandir(path) as entries:
        names = {entry.name for entry in entries}
    return not names or PARTITION_METADATA in names
