"""The offsets that open transactions have staged in one group (KIP-98, KIP-447).

A transaction stages an offset with TxnOffsetCommit. It becomes the committed offset when the transaction commits, and
is dropped when it aborts. Until then the last committed offset is shown. Readers that ask for stable offsets wait.

The newer commit wins: an offset that was staged before another commit of the same partition is *superseded* and is
not committed any more. `commit_seq` is the order of all that is staged and of the commits that it meets.
"""

from __future__ import annotations

from collections.abc import Iterator, KeysView
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID


class Place(NamedTuple):
    """A partition of a topic by its id, so that a topic that is created again under the name is another one."""

    topic_id: UUID
    partition: int


class PendingOffset(NamedTuple):
    """An offset that is staged. `commit_ms` is wall time."""

    producer_epoch: int
    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    commit_seq: int
    superseded: bool = False


class StagedOffset(NamedTuple):
    """An offset with the producer that stages it, and for which partition."""

    place: Place
    producer_id: int
    pending: PendingOffset


class StoredPending(NamedTuple):
    """The row of a staged offset."""

    group_id: str
    staged: StagedOffset


@dataclass(slots=True)
class PendingChange:
    """What a commit does to staged offsets: add some; supersede or drop those older than `commit_seq`."""

    commit_seq: int
    staged: list[StagedOffset] = field(default_factory=list)
    superseded: list[Place] = field(default_factory=list)
    dropped: list[Place] = field(default_factory=list)


class PendingOffsets:
    """The staged offsets of one group, by partition and producer."""

    __slots__ = ("_places",)

    def __init__(self) -> None:
        self._places: dict[Place, dict[int, PendingOffset]] = {}

    def __bool__(self) -> bool:
        return bool(self._places)

    def __iter__(self) -> Iterator[StagedOffset]:
        for place, producers in self._places.items():
            for producer_id, pending in producers.items():
                yield StagedOffset(place, producer_id, pending)

    def __contains__(self, place: Place) -> bool:
        return place in self._places

    def places(self) -> KeysView[Place]:
        """Return the partitions that have staged offsets."""
        return self._places.keys()

    def of_producer(self, producer_id: int) -> list[StagedOffset]:
        """Return what a producer has staged."""
        return [
            StagedOffset(place, producer_id, producers[producer_id])
            for place, producers in self._places.items()
            if producer_id in producers
        ]

    def has_older(self, place: Place, commit_seq: int) -> bool:
        """Return whether a partition has a staged offset that is older than this."""
        return any(pending.commit_seq < commit_seq for pending in self._places.get(place, {}).values())

    def put(self, staged: StagedOffset) -> None:
        """Add or replace what a producer has staged for a partition."""
        self._places.setdefault(staged.place, {})[staged.producer_id] = staged.pending

    def supersede(self, place: Place, commit_seq: int) -> None:
        """Note a commit of the partition: what is older will not be committed."""
        producers = self._places.get(place, {})
        for producer_id, pending in producers.items():
            if pending.commit_seq < commit_seq:
                producers[producer_id] = pending._replace(superseded=True)

    def remove(self, place: Place, producer_id: int) -> None:
        """Drop what a producer has staged for a partition."""
        producers = self._places[place]
        del producers[producer_id]
        if not producers:
            del self._places[place]

    def apply(self, change: PendingChange) -> None:
        """Apply a change that is durable."""
        for place in change.superseded:
            self.supersede(place, change.commit_seq)
        for place in change.dropped:
            for producer_id, pending in list(self._places.get(place, {}).items()):
                if pending.commit_seq < change.commit_seq:
                    self.remove(place, producer_id)
        for staged in change.staged:
            self.put(staged)
