"""Words and numbers for people: sizes, durations, ranges, and text that is safe on a terminal."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any

# What could move the cursor, ring, or rewrite a terminal's title. Tab and newline are left to the caller.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def printable(text: str) -> str:
    r"""Return text without control characters: they become `\x1b`, so that no record can control the terminal."""
    return _UNPRINTABLE.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)


def one_line(text: str) -> str:
    """Text for a cell of a table: printable, without tabs and newlines."""
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")


def width_of(text: str) -> int:
    """The columns that a text takes on a terminal: wide characters take two, combining marks none."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text
    )


def size(count: int | None) -> str:
    """Bytes in the unit that keeps the number below 1024: `812 B`, `4.2 MiB`; `-` if they are not known."""
    if count is None:
        return "-"
    amount = float(count)
    for unit in _UNITS:
        if amount < 1024 or unit == _UNITS[-1]:
            break
        amount /= 1024
    return f"{count} B" if unit == "B" else f"{amount:.1f} {unit}"


def duration(ms: int) -> str:
    """Milliseconds in the largest unit that they are a whole number of, or with one decimal: `7 d`, `1.5 s`."""
    for unit, length in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000)):
        if ms >= length and (ms % length == 0 or unit == "s"):
            return f"{ms // length} {unit}" if ms % length == 0 else f"{ms / length:.1f} {unit}"
    return f"{ms} ms"


def counted(count: int, noun: str) -> str:
    """`1 record`, `12,000 records`."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def ranges(numbers: Iterable[int]) -> str:
    """Numbers as ranges: `0-5,7`."""
    parts: list[list[int]] = []
    for number in sorted(set(numbers)):
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in parts)


def owned(partitions: Iterable[Mapping[str, Any]]) -> str:
    """Partitions of some topics: `clicks[1] orders[0-2]`."""
    topics: dict[str, list[int]] = {}
    for one in partitions:
        topics.setdefault(one["topic"], []).append(one["partition"])
    return " ".join(f"{topic}[{ranges(numbers)}]" for topic, numbers in sorted(topics.items()))
