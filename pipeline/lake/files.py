"""How data files are called, and what is known of one before it is opened.

    [day=2025-01-31/]orders-0-00000000000000001000-00000000000000001999[-1f3a…].parquet
     Hive directories topic  partition  first offset       last offset   query, where a log names the files

Offsets have 20 digits, so that names sort as the log does. Ranges of one topic and partition do not overlap,
unless files lie in different Hive directories: then they interleave, and each name gives its own least and
greatest offset.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import quote

import msgspec

NULL_DIRECTORY = "__HIVE_DEFAULT_PARTITION__"
_NAME = re.compile(
    r"^(?P<topic>.+)-(?P<partition>\d+)-(?P<first>\d{20})-(?P<last>\d{20})(-[0-9a-f]{8})?\.parquet$"
)


class DataFile(msgspec.Struct, frozen=True):
    """One finished Parquet file of a batch. Paths are relative to the table; `size` is in bytes.

    `staged` is where the task left it, hidden; `path` is its name after the commit. `values` are the Hive
    partition values by column, as text, None for null.
    """

    staged: str
    path: str
    topic: str
    partition: int
    first: int
    last: int
    rows: int
    size: int
    values: dict[str, str | None] = {}


class Rejected(msgspec.Struct, frozen=True):
    """The first record of a task that did not fit, and why."""

    topic: str
    partition: int
    offset: int
    reason: str


class Staged(msgspec.Struct):
    """What one task did: its files, and the records that it left out."""

    files: list[DataFile] = []
    rejected: int = 0
    first_rejected: Rejected | None = None


def file_name(topic: str, partition: int, first: int, last: int, mark: str = "") -> str:
    """The name of a file that holds offsets `first` to `last`; `mark` makes it one of a certain query."""
    return f"{topic}-{partition}-{first:020}-{last:020}{'-' + mark if mark else ''}.parquet"


def parse_name(name: str) -> tuple[str, int, int, int] | None:
    """(topic, partition, first, last) of a file name of ours; None for any other name."""
    match = _NAME.match(PurePosixPath(name).name)
    return (
        (match["topic"], int(match["partition"]), int(match["first"]), int(match["last"])) if match else None
    )


def hive_value(value: Any) -> str | None:
    """A partition value as text: what Hive, Spark and Delta expect of dates, numbers, booleans and strings."""
    if value is None:
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)


def hive_directory(values: dict[str, str | None]) -> str:
    """`a=1/b=x/` for these values, percent-encoded as Hive does; empty when there are none."""
    return "".join(
        f"{quote(name, safe='')}={NULL_DIRECTORY if value is None else quote(value, safe=' ')}/"
        for name, value in values.items()
    )
