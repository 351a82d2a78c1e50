"""Compare source and target: each record with its offset, the number of partitions, the offsets of groups.

Both logs of a partition are read from the first record that the source still has, in step. A record is equal if its
key, value, headers and time are, and if its offset is the one that the journal says. The CRC of a partition covers
key, value, headers and time of all its records in their order; it is printed for both sides.

The source goes on to compact its topics, also while it is frozen. So in a compacted topic the target may have records
that the source does not have any more; they are counted apart, and the target will compact them, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from itertools import islice
from typing import NamedTuple

import msgspec
from crc32c import crc32c

from core.errors import BrokerError, ErrorCode
from core.move.batches import MAX_DECOMPRESSED, visible_batches
from core.move.cluster import EARLIEST, LATEST, MoveCluster
from core.move.copy import MIB
from core.move.groups import GroupDifference, compare_groups
from core.move.journal import Journal, MovedTopic
from core.records.batch import iter_records
from core.records.record import Record
from core.types import TopicPartition

_FETCH_BYTES = 4 * MIB
# Records that are compared in one turn of the loop: about a millisecond.
_SLICE = 500
# Partitions that are compared at the same time.
_AT_ONCE = 4

_encode = msgspec.msgpack.Encoder().encode


class Side(NamedTuple):
    """What was read of one side of a partition."""

    records: int
    crc: int


class PartitionReport(NamedTuple):
    """A partition that was compared. `difference` says what is not equal; empty if all is.

    `compacted` records of the target were removed from the source by compaction, after they were copied.
    """

    tp: TopicPartition
    source: Side
    target: Side
    same_offsets: bool
    difference: str
    compacted: int = 0

    @property
    def equal(self) -> bool:
        """Whether both sides are equal."""
        return not self.difference


class Report(NamedTuple):
    """The result of a comparison. `topics` are sentences on topics that are not equal as a whole."""

    topics: list[str]
    partitions: list[PartitionReport]
    groups: list[GroupDifference]

    @property
    def equal(self) -> bool:
        """Whether nothing differs."""
        return not self.topics and not self.groups and all(one.equal for one in self.partitions)


async def verify(
    source: MoveCluster,
    target: MoveCluster,
    journal: Journal,
    wanted: Callable[[str], bool],
    *,
    groups: bool = True,
) -> Report:
    """Compare all topics of the move that are wanted. Raises BrokerError, JournalError."""
    there, found = await source.topics(), await target.topics()
    moved = {name: topic for name, topic in journal.topics().items() if wanted(name)}
    problems = [
        f"Topic {name!r} is not copied." for name in sorted(there) if wanted(name) and name not in moved
    ]
    tps: list[TopicPartition] = []
    for name, topic in moved.items():
        problem = _of_topic(topic, there.get(name), found.get(name))
        if problem:
            problems.append(problem)
        else:
            tps += [TopicPartition(name, partition) for partition in range(len(there[name].partitions))]
    policies = {name: topic.configs.get("cleanup.policy", "") for name, topic in moved.items()}
    limit = asyncio.Semaphore(_AT_ONCE)

    async def compare(tp: TopicPartition) -> PartitionReport:
        async with limit:
            return await _compare(source, target, journal, tp, compacted="compact" in policies[tp.topic])

    reports = await asyncio.gather(*(compare(tp) for tp in tps))
    differences = await compare_groups(source, target, journal, wanted) if groups else []
    return Report(problems, list(reports), differences)


def _of_topic(topic: MovedTopic, source: object, target: object) -> str:
    name = topic.name
    if source is None or source.topic_id != topic.source_id:  # type: ignore[attr-defined]
        return f"Topic {name!r} of the source was deleted, or created again, since it was copied."
    if target is None or target.topic_id != topic.target_id:  # type: ignore[attr-defined]
        return f"Topic {name!r} of the target was deleted, or created again, since it was copied."
    counts = len(source.partitions), len(target.partitions)  # type: ignore[attr-defined]
    if counts[0] != counts[1]:
        return f"Topic {name!r} has {counts[0]} partitions in the source and {counts[1]} in the target."
    return ""


async def _compare(
    source: MoveCluster, target: MoveCluster, journal: Journal, tp: TopicPartition, *, compacted: bool
) -> PartitionReport:
    start = (await source.offsets([tp], EARLIEST))[tp]
    source_end = (await source.offsets([tp], LATEST, committed=True))[tp]
    target_end = (await target.offsets([tp], LATEST))[tp]
    progress = journal.progress().get(tp)
    if progress is None:
        return PartitionReport(tp, Side(0, 0), Side(0, 0), False, "it is not copied")
    end, until = min(source_end, progress.source_next), min(target_end, progress.target_next)
    first = journal.translate(tp, min(max(start, progress.source_start), progress.source_next))
    state = _Comparison(journal, tp)
    await (state.run_compacted if compacted else state.run)(
        _records(source, tp, start, end, committed=True), _records(target, tp, first, until, committed=False)
    )
    difference = state.difference
    if not difference and source_end > progress.source_next:
        difference = f"offsets {progress.source_next} to {source_end - 1} of the source are not copied yet"
    if not difference and target_end != progress.target_next:
        difference = f"the target ends at {target_end}; the move has written it up to {progress.target_next}"
    return PartitionReport(
        tp, state.source, state.target, journal.equal_offsets(tp), difference, state.compacted
    )


class _Comparison:
    """Two logs that are read in step."""

    def __init__(self, journal: Journal, tp: TopicPartition) -> None:
        self._runs = journal.runs(tp)
        self._run = next(self._runs, None)
        self.source, self.target = Side(0, 0), Side(0, 0)
        self.difference = ""
        self.compacted = 0

    async def run_compacted(
        self, source: AsyncIterator[list[Record]], target: AsyncIterator[list[Record]]
    ) -> None:
        """The same, but leave out records of the target whose offsets the source does not have any more."""
        theirs: list[Record] = []
        async for ours in source:
            for one in ours:
                wanted = self._translated(one.offset)
                while wanted is not None:
                    if not theirs and not (theirs := (await anext(target, []))[::-1]):
                        break
                    if theirs[-1].offset >= wanted:
                        break
                    theirs.pop()
                    self.compacted += 1
                if theirs:
                    self._pair(one, theirs.pop())
                else:
                    self._alone([one], [])
            await asyncio.sleep(0)
        self.compacted += len(theirs)
        async for left in target:
            self.compacted += len(left)

    async def run(self, source: AsyncIterator[list[Record]], target: AsyncIterator[list[Record]]) -> None:
        """Read both to their ends; note the first difference."""
        ours: list[Record] = []
        theirs: list[Record] = []
        while True:
            if not ours:
                ours = await anext(source, [])
            if not theirs:
                theirs = await anext(target, [])
            if not ours and not theirs:
                return
            if not ours or not theirs:
                self._alone(ours, theirs)
                ours, theirs = [], []
                continue
            count = min(len(ours), len(theirs), _SLICE)
            for one, other in zip(islice(ours, count), islice(theirs, count), strict=True):
                self._pair(one, other)
            ours, theirs = ours[count:], theirs[count:]
            await asyncio.sleep(0)

    def _pair(self, one: Record, other: Record) -> None:
        first, second = _content(one), _content(other)
        self.source = Side(self.source.records + 1, crc32c(first, self.source.crc))
        self.target = Side(self.target.records + 1, crc32c(second, self.target.crc))
        if self.difference:
            return
        if first != second:
            self.difference = (
                f"the record at offset {one.offset} of the source differs from that at {other.offset} of the "
                f"target: {_what_differs(one, other)}"
            )
        elif (wanted := self._translated(one.offset)) != other.offset:
            self.difference = (
                f"the record at offset {one.offset} of the source is at {other.offset} of the target; "
                f"the journal says {'nothing of it' if wanted is None else wanted}"
            )

    def _alone(self, ours: Sequence[Record], theirs: Sequence[Record]) -> None:
        """Count records that only one side has."""
        for one in ours:
            self.source = Side(self.source.records + 1, crc32c(_content(one), self.source.crc))
        for one in theirs:
            self.target = Side(self.target.records + 1, crc32c(_content(one), self.target.crc))
        if not self.difference:
            side, first = ("source", ours[0]) if ours else ("target", theirs[0])
            self.difference = (
                f"the record at offset {first.offset} of the {side} is missing on the other side"
            )

    def _translated(self, offset: int) -> int | None:
        """Return the offset in the target. Offsets come in order, so that each run is read once."""
        while self._run is not None and offset >= self._run.source + self._run.length:
            self._run = next(self._runs, None)
        if self._run is None or offset < self._run.source:
            return None
        return self._run.target + offset - self._run.source


def _content(record: Record) -> bytes:
    return _encode((record.timestamp, record.key, record.value, record.headers))


def _what_differs(one: Record, other: Record) -> str:
    parts = [
        f"{name} ({_shown(ours)} and {_shown(theirs)})"
        for name, ours, theirs in (
            ("key", one.key, other.key),
            ("value", one.value, other.value),
            ("headers", one.headers, other.headers),
            ("time", one.timestamp, other.timestamp),
        )
        if ours != theirs
    ]
    return ", ".join(parts)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


async def _records(
    cluster: MoveCluster, tp: TopicPartition, start: int, end: int, *, committed: bool
) -> AsyncIterator[list[Record]]:
    """Yield the records from `start` up to and without `end`, in lists that are not empty."""
    position = start
    while position < end:
        fetched = await cluster.fetch(
            {tp: position}, committed=committed, max_bytes=_FETCH_BYTES, partition_bytes=_FETCH_BYTES
        )
        if tp not in fetched:
            continue
        one = fetched[tp]
        if one.error is not ErrorCode.NONE:
            raise BrokerError(one.error, f"{tp} cannot be read from offset {position}: {one.error.name}.")
        found: list[Record] = []
        for header, batch, seen in visible_batches(one.data, one.aborted):
            if header.next_offset <= position:
                continue
            if seen and header.record_count:
                records = iter_records(batch, 0, header, max_bytes=MAX_DECOMPRESSED, first_offset=position)
                found += [record for record in records if record.offset < end]
            position = header.next_offset
        if found:
            yield found
