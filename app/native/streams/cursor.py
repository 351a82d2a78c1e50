"""Cursors: the position of a reader of several partitions, as one text that a client keeps and sends back.

Layout (for us; clients must not look inside):

    1 . 3f2a9c01b7d4 . 0 . 2a . 0_c . 15 . 8f3e21aa
    │   │              │   └─ positions    └─ CRC-32 of all before it
    │   │              └─ whose turn it is: the index of the partition that is read first
    │   └─ the topic: the first twelve digits of its id, so that a topic deleted and created again is another one
    └─ version

Numbers are hexadecimal. A position is the next offset of one partition, in the order of the partitions: `2a`,
or `0_c` for twelve partitions at 0. A reader of chosen partitions has `7-2a` (partition 7 at 2a) instead.
Every character is one that needs no escape in a URL, a header line, or JSON. Partitions that a topic has got
since the cursor was made are not in it: they begin at 0.

The text is made for every record of a stream. Only one number changes, so the writer makes the text before and after
it once. The rest is one format and two short checksums.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID
from zlib import crc32

VERSION = b"1"
_TAG_DIGITS = 12
_MAX_OFFSET = 2**63 - 1
_MAX_PARTITION = 2**31 - 1
_NUMBER = re.compile(r"[0-9a-f]{1,16}")
_WHOLE = re.compile(rf"1\.[0-9a-f]{{{_TAG_DIGITS}}}\.[0-9a-f]{{1,8}}(\.[0-9a-f_-]{{1,40}})+\.[0-9a-f]{{8}}")


class CursorError(ValueError):
    """A text that is no cursor of this topic; the message says why."""


class Position:
    """The position of a reader: the next offset of each of its partitions, and the partition whose turn is next.

    Equal positions are equal keys. The hash is kept, because readers of one topic look each other's work up
    by their position, and a topic may have thousands of partitions.
    """

    __slots__ = ("_hash", "offsets", "turn")

    def __init__(self, offsets: tuple[int, ...], turn: int = 0) -> None:
        self.offsets = offsets
        self.turn = turn
        self._hash = hash((offsets, turn))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Position) and self.turn == other.turn and self.offsets == other.offsets
        )

    def __repr__(self) -> str:
        return f"Position({self.offsets}, {self.turn})"


class Cursor(NamedTuple):
    """What a cursor says: the partitions (None: all of the topic, in order) and the position over them."""

    partitions: tuple[int, ...] | None
    position: Position


class CursorWriter:
    """Writes the cursors of one reader. `partitions` None means all partitions of the topic."""

    def __init__(self, topic_id: UUID, partitions: tuple[int, ...] | None) -> None:
        self._head = b"%b.%b." % (VERSION, topic_id.hex[:_TAG_DIGITS].encode())
        self._partitions = partitions

    def text(self, position: Position) -> bytes:
        """The cursor of a position."""
        whole = b"%b%x%b" % (self._head, position.turn, self._parts(position.offsets, 0))
        return b"%b.%08x" % (whole, crc32(whole))

    def after_each(self, offsets: Sequence[int], index: int, ends: Sequence[int]) -> list[bytes]:
        """Return the cursors of a reader at `offsets` that moves only in partition `index`, one for each end.

        The turn stays with that partition, so that a reader that is disconnected in the middle continues there.
        """
        before = b"%b%x%b." % (self._head, index, self._parts(offsets[:index], 0))
        if self._partitions is not None:
            before += b"%x-" % self._partitions[index]
        behind = self._parts(offsets[index + 1 :], index + 1)
        start = crc32(before)
        cursors = []
        for end in ends:
            digits = b"%x" % end
            cursors.append(b"%b%b%b.%08x" % (before, digits, behind, crc32(behind, crc32(digits, start))))
        return cursors

    def _parts(self, offsets: Sequence[int], first: int) -> bytes:
        if self._partitions is not None:
            names = self._partitions[first : first + len(offsets)]
            return b"".join([b".%x-%x" % pair for pair in zip(names, offsets, strict=True)])
        parts = []
        index, count = 0, len(offsets)
        while index < count:
            offset = offsets[index]
            end = index + 1
            while end < count and offsets[end] == offset:
                end += 1
            parts.append(b".%x" % offset if end == index + 1 else b".%x_%x" % (offset, end - index))
            index = end
        return b"".join(parts)


def read_cursor(text: str, topic_id: UUID, max_partitions: int) -> Cursor:
    """Return the position of a cursor.

    Raises CursorError if it is damaged, another topic's, or of another version.
    """
    if not text.isascii() or not text.startswith("1."):
        raise CursorError("it is not a cursor of this version of the server")
    whole, _, checksum = text.rpartition(".")
    if not _WHOLE.fullmatch(text) or int(checksum, 16) != crc32(whole.encode()):
        raise CursorError("it is damaged; send it back unchanged")
    _, tag, turn, *parts = whole.split(".")
    if tag != topic_id.hex[:_TAG_DIGITS]:
        raise CursorError(
            "it was made for another topic, or for one of this name that has been deleted since"
        )
    partitions: list[int] = []
    offsets: list[int] = []
    for part in parts:
        name, dash, rest = part.rpartition("-")
        digits, underscore, many = rest.partition("_")
        count = _number(many, max_partitions) if underscore else 1
        if len(offsets) + count > max_partitions or (dash and underscore):
            raise CursorError("it names more partitions than a topic may have")
        offsets += [_number(digits, _MAX_OFFSET)] * count
        if dash:
            partitions.append(_number(name, _MAX_PARTITION))
    if partitions and len(partitions) != len(offsets):
        raise CursorError("it is damaged; send it back unchanged")
    first = int(turn, 16)
    position = Position(tuple(offsets), first if first < len(offsets) else 0)
    return Cursor(tuple(partitions) or None, position)


def _number(digits: str, limit: int) -> int:
    if not _NUMBER.fullmatch(digits) or (number := int(digits, 16)) > limit:
        raise CursorError("it holds a number that is out of range")
    return number
