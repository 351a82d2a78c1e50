"""The cache that many readers of one topic share: each record is read and encoded once for all of them.

Two stores, both bounded in bytes; the least recently used entry is dropped first:

- ranges: the encoded records of one partition between two offsets, in one encoding, through one filter;
- pieces: what a stream sends next, by the position it is sent from.

A record never changes, so an entry stays right. It may be short: it holds the records that existed when it was made,
and a later reader continues after it. That also keeps readers together: readers that start at the same position
arrive at the same position. Readers that lag are brought together as well, since ranges end at multiples of
`RANGE_RECORDS`.

The log is the buffer of a slow reader. Nothing is queued for a reader: one that reaches a position late makes its
range again.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

from app.formats import Reader
from app.native.record_json import record_texts
from app.native.streams.cursor import CursorWriter, Position
from app.native.streams.filters import Filter
from core.config import KIB, Config
from core.errors import BrokerError, ErrorCode
from core.facade import Facade
from core.records.record import Record
from core.security.meter import payload_size
from core.types import TopicPartition
from core.vocabulary.records import FetchRead
from core.vocabulary.topic import TopicInfo

# A range is made in one slice of the event loop: at 2 µs a record, half a millisecond.
RANGE_RECORDS = 256
# Bytes of the log that a range is made from; at least one batch, of which it takes as much again at most.
RANGE_BYTES = 64 * KIB
# Records that go into one piece or pass by it (a filter may have few matches), and how many of them a range
# counts for beside its own, since a topic may have many partitions with one record each.
PIECE_SCAN = 2_048
_RANGE_COST = 16
# What an entry costs beside its bytes, about.
_RECORD_COST, _ENTRY_COST = 100, 500
# Kept lists of partition ends: one for each topic that is read just now.
_MAX_ENDS = 1_000


class Feed:
    """What one reader wants of a topic: which partitions, how encoded, which records.

    `partitions` None means all, also those that the topic gets later. With `committed` it reads committed records
    only. Readers with equal feeds share.
    """

    __slots__ = ("committed", "filter", "key", "partitions", "reader", "topic", "topic_id", "writer")

    def __init__(
        self,
        info: TopicInfo,
        partitions: tuple[int, ...] | None,
        reader: Reader,
        encoding: str,
        wanted: Filter | None,
        *,
        committed: bool = True,
    ) -> None:
        self.topic = info.name
        self.topic_id = info.topic_id
        self.partitions = partitions
        self.reader = reader
        self.filter = wanted
        self.writer = CursorWriter(info.topic_id, partitions)
        self.committed = committed
        self.key: Hashable = (info.topic_id.int, encoding, wanted, committed)

    def number(self, index: int) -> int:
        """The partition at an index of a position."""
        return index if self.partitions is None else self.partitions[index]


class Range:
    """Encoded records of one partition. `ends` are the offsets after each; `scanned` counts all examined ones.

    `payloads` are the bytes that each counts under a quota.
    """

    __slots__ = ("_lines", "ends", "next_offset", "payloads", "scanned", "size", "texts")

    def __init__(
        self, texts: list[bytes], ends: list[int], payloads: list[int], next_offset: int, scanned: int
    ) -> None:
        self.texts = texts
        self.ends = ends
        self.payloads = payloads
        self.next_offset = next_offset
        self.scanned = scanned
        self.size = sum(map(len, texts))
        self._lines: list[bytes] | None = None

    @property
    def lines(self) -> list[bytes]:
        """The texts, each on one line: the line breaks that a client's JSON may have became blanks."""
        if self._lines is None:
            self._lines = self.texts
            if any(b"\n" in text or b"\r" in text for text in self.texts):
                self._lines = [text.translate(_NO_BREAKS) for text in self.texts]
        return self._lines

    def end_of(self, count: int) -> int:
        """Return where the next read continues after the first `count` records."""
        return self.next_offset if count == len(self.ends) else self.ends[count - 1]


# Inside of a JSON string a line break is always escaped; a bare one is a blank.
_NO_BREAKS = bytes.maketrans(b"\r\n", b"  ")


class Part(NamedTuple):
    """The first `used` records of a range; `at` is the partition's index in the position."""

    at: int
    found: Range
    used: int


class Taken(NamedTuple):
    """The records of a read, in order, and the positions before and after them."""

    parts: list[Part]
    before: Position
    behind: Position

    @property
    def records(self) -> int:
        """How many records."""
        return sum(part.used for part in self.parts)

    @property
    def payload(self) -> int:
        """How many bytes they count under a quota."""
        return sum(sum(part.found.payloads[: part.used]) for part in self.parts)


class Piece(NamedTuple):
    """What a stream sends at once, and its position after that. `body` is empty if no record matched the filter.

    `payload` is what it counts under a quota in bytes.
    """

    body: bytes
    behind: Position
    payload: int


class Form(Protocol):
    """The form of records in a stream."""

    name: str

    def records(self, feed: Feed, taken: Taken) -> bytes:
        """Some records as they are sent."""
        ...


class ReadFaultError(Exception):
    """A partition that cannot be read at its position: `error` says why, `index` which."""

    def __init__(self, index: int, error: BrokerError) -> None:
        super().__init__(error.message)
        self.index = index
        self.error = error


T = TypeVar("T")


class _Kept(Generic[T]):
    """Entries of which the least recently used go when their bytes are too many."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._entries: OrderedDict[Hashable, tuple[T, int]] = OrderedDict()
        self.size = 0

    def get(self, key: Hashable) -> T | None:
        found = self._entries.get(key)
        if found is None:
            return None
        self._entries.move_to_end(key)
        return found[0]

    def put(self, key: Hashable, entry: T, size: int) -> None:
        if size > self._limit // 4 or key in self._entries:
            return
        self._entries[key] = (entry, size)
        self.size += size
        while self.size > self._limit:
            _, (_, gone) = self._entries.popitem(last=False)
            self.size -= gone


class Fanout:
    """The shared reading of one application; used on the event loop only. `bring` may wait, all else does not."""

    def __init__(self, config: Config, broker: Callable[[], Facade]) -> None:
        self._config = config
        self._broker = broker
        self._range_bytes = min(RANGE_BYTES, config.stream_piece_bytes)
        self._ranges: _Kept[Range] = _Kept(config.stream_cache_bytes)
        self._pieces: _Kept[Piece] = _Kept(config.stream_cache_bytes)
        self._ends: OrderedDict[Hashable, tuple[int, tuple[int, ...]]] = OrderedDict()

    # --- where the ends are --------------------------------------------------------------------------------

    def info(self, feed: Feed) -> TopicInfo:
        """Return the topic of a feed.

        Raises UNKNOWN_TOPIC_OR_PARTITION if it was deleted, also if a new one has its name.
        """
        info = self._broker().topics.get(feed.topic)
        if info.topic_id != feed.topic_id:
            raise BrokerError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"Topic {feed.topic!r} was deleted and created again.",
                topic=feed.topic,
            )
        return info

    def ends(self, feed: Feed) -> tuple[int, ...]:
        """Where reads of the feed's partitions end; all are looked at only after something happened."""
        broker = self._broker()
        info = self.info(feed)
        touched = broker.changes.touched.get(feed.topic, 0)
        key = (feed.topic_id.int, feed.partitions, feed.committed)
        found = self._ends.get(key)
        if found is not None and found[0] == touched:
            return found[1]
        partitions = range(info.partitions) if feed.partitions is None else feed.partitions
        bounds = broker.partitions.bounds(feed.topic, partitions)
        ends = tuple([one.end(committed=feed.committed) for one in bounds])
        self._ends[key] = (touched, ends)
        if len(self._ends) > _MAX_ENDS:
            self._ends.popitem(last=False)
        return ends

    def caught_up(self, feed: Feed, position: Position) -> bool:
        """Whether nothing is left to read at a position."""
        ends, offsets = self.ends(feed), position.offsets
        return offsets == ends or (len(offsets) == len(ends) and not any(map(int.__lt__, offsets, ends)))

    # --- reading -------------------------------------------------------------------------------------------

    async def bring(self, feed: Feed, position: Position, *, max_bytes: int) -> None:
        """Bring the batches of a read at a position to hand. The ends of the partitions are so already."""
        broker = self._broker()
        info = self.info(feed)
        offsets = position.offsets
        known = len(offsets)
        partitions = range(info.partitions) if feed.partitions is None else feed.partitions
        each = min(self._range_bytes, max_bytes)
        reads = [
            FetchRead(
                TopicPartition(feed.topic, partition),
                offsets[index] if index < known else 0,
                each,
                committed=feed.committed,
            )
            for index, partition in enumerate(partitions)
        ]
        turn = position.turn
        await broker.bring(reads[turn:] + reads[:turn], max_bytes=max_bytes, fresh=False)

    async def piece(self, feed: Feed, form: Form, position: Position) -> Piece | None:
        """What a stream at a position sends next; None when there is nothing. Raises ReadFaultError."""
        key = (feed.key, feed.partitions, form.name, position)
        found = self._pieces.get(key)
        if found is None:
            if self.caught_up(feed, position):
                return None
            await self.bring(feed, position, max_bytes=self._config.stream_piece_bytes)
            # Another listener may have made it meanwhile.
            found = self._pieces.get(key)
        if found is None:
            taken = self.take(feed, position, max_bytes=self._config.stream_piece_bytes, whole=True)
            body = form.records(feed, taken) if taken.parts else b""
            found = Piece(body, taken.behind, taken.payload)
            if found.behind != position:
                self._pieces.put(key, found, len(body) + _ENTRY_COST)
        return found

    def take(
        self,
        feed: Feed,
        position: Position,
        *,
        max_bytes: int,
        max_records: int = 2**31,
        max_scan: int = PIECE_SCAN,
        whole: bool = False,
        one_at_least: bool = True,
    ) -> Taken:
        """Some records from a position on, in turn from each partition that has any.

        With `one_at_least` the first record is returned even if it is larger. The read ends before the record that
        would exceed `max_bytes` of encoded records, or, with `whole`, after the range that exceeds it.
        Raises ReadFaultError when the first partition whose turn it is cannot be read.
        """
        ends = self.ends(feed)
        offsets = list(position.offsets) + [0] * (len(ends) - len(position.offsets))
        grown = len(offsets) > len(position.offsets)
        before = Position(tuple(offsets), position.turn) if grown else position
        waiting = _in_turn(offsets, ends, position.turn)
        parts: list[Part] = []
        size = count = looked = 0
        while waiting and size < max_bytes and count < max_records and looked < max_scan:
            index = waiting[0]
            try:
                found = self._range(feed, index, offsets[index], max_records - count)
            except BrokerError as error:
                if not looked:
                    raise ReadFaultError(index, error) from None
                break
            room = found.size if whole else max_bytes - size
            fits = _fitting(found, room, max_records - count, one_at_least and not parts)
            if fits:
                parts.append(Part(index, found, fits))
                size += found.size
                count += fits
            looked += found.scanned + _RANGE_COST
            if fits < len(found.texts):
                if fits:
                    offsets[index] = found.end_of(fits)
                break
            offsets[index] = found.next_offset
            waiting.popleft()
            if offsets[index] < ends[index]:
                waiting.append(index)
        return Taken(parts, before, Position(tuple(offsets), waiting[0] if waiting else 0))

    def _range(self, feed: Feed, index: int, offset: int, room: int) -> Range:
        """Records of one partition from an offset on; none if all are left out. Raises BrokerError."""
        until = offset - offset % RANGE_RECORDS + RANGE_RECORDS
        # A request for one record need not encode 256. With a filter the number of matches is not known before.
        count = until - offset if feed.filter is not None else min(until - offset, room)
        number = feed.number(index)
        key = (feed.key, number, offset, count)
        found = self._ranges.get(key)
        if found is None:
            found = self._make_range(feed, TopicPartition(feed.topic, number), offset, count, until)
            cost = found.size + len(found.texts) * _RECORD_COST + _ENTRY_COST
            if found.next_offset > offset:
                self._ranges.put(key, found, cost)
        return found

    def _make_range(self, feed: Feed, tp: TopicPartition, offset: int, count: int, until: int) -> Range:
        result = self._broker().records.read_now(
            tp, offset, max_bytes=self._range_bytes, max_records=count, committed=feed.committed
        )
        records, next_offset = _cut(result.records, result.next_offset, until, 2 * self._range_bytes)
        scanned = len(records)
        if feed.filter is not None:
            records = [record for record in records if feed.filter.takes(record)]
        texts = record_texts(tp, records, feed.reader)
        ends = [record.offset + 1 for record in records]
        return Range(texts, ends, list(map(payload_size, records)), next_offset, scanned)


def _in_turn(offsets: Sequence[int], ends: Sequence[int], turn: int) -> deque[int]:
    """The partitions that have something to read, the one whose turn it is first."""
    waiting = [i for i, end in enumerate(ends) if offsets[i] < end]
    if turn:
        waiting = [i for i in waiting if i >= turn] + [i for i in waiting if i < turn]
    return deque(waiting)


def _fitting(found: Range, max_bytes: int, max_records: int, one_at_least: bool) -> int:
    """How many records of a range fit into what is left."""
    if found.size <= max_bytes and len(found.texts) <= max_records:
        return len(found.texts)
    count = 0
    for text in found.texts:
        max_bytes -= len(text)
        if count >= max_records or (max_bytes < 0 and (count or not one_at_least)):
            break
        count += 1
    return count


def _cut(records: list[Record], next_offset: int, until: int, max_bytes: int) -> tuple[list[Record], int]:
    """The records below `until`, and no more of them than have `max_bytes`; at least one."""
    size = 0
    for index, record in enumerate(records):
        if record.offset >= until:
            return records[:index], until
        size += len(record.key or b"") + len(record.value or b"") + len(record.headers) * _RECORD_COST
        if size > max_bytes and index:
            return records[:index], record.offset
    return records, next_offset
