"""What the broker has promised so far, and whether it keeps it.

Every check raises `BrokenPromiseError` with one line. The promises are those of docs/operations/durability.md:
acknowledged is kept, offsets are dense, once means once, commits stay, one owner per generation.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

Partition = tuple[str, int]
Claim = tuple[str, str, int]
"""Group, topic, partition."""


class BrokenPromiseError(AssertionError):
    """The broker did what it must not do."""


@dataclass
class Ledger:
    """Everything that clients know for sure. Values are unique over a run, so a value names its record."""

    # What lies at an offset, as an answer or a read has said.
    records: dict[Partition, dict[int, bytes]] = field(default_factory=lambda: defaultdict(dict))
    # Below this offset everything survives the loss of power too (acks=all was answered).
    durable: dict[Partition, int] = field(default_factory=lambda: defaultdict(int))
    # Below this offset records were deleted by request.
    start: dict[Partition, int] = field(default_factory=lambda: defaultdict(int))
    # Values that must be there exactly once in the end, and those that may be there at most once.
    once: set[bytes] = field(default_factory=set)
    at_most_once: set[bytes] = field(default_factory=set)
    # The last value of each key that was acknowledged, and those written since whose answer was lost.
    keys: dict[tuple[str, bytes], set[bytes]] = field(default_factory=lambda: defaultdict(set))
    acknowledged_keys: set[tuple[str, bytes]] = field(default_factory=set)
    # Committed offsets: confirmed, and the highest that may have been stored without an answer.
    committed: dict[Claim, int] = field(default_factory=dict)
    may_be_committed: dict[Claim, int] = field(default_factory=dict)
    # What each group that reads ahead of the disk was given, by its name.
    delivered: dict[str, set[bytes]] = field(default_factory=lambda: defaultdict(set))
    # Partitions of which something was durable, and not deleted by request, whenever power was lost; of others the
    # first files may be lost, and later ones be there.
    kept_from_the_start: set[Partition] | None = None
    # The owner of a partition in a generation; and the newest generation that is known to be complete.
    owners: dict[tuple[str, int, str, int], str] = field(default_factory=dict)
    generations: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    topics: set[str] = field(default_factory=set)

    # --- records -------------------------------------------------------------------------------------------

    def saw(self, topic: str, partition: int, offset: int, value: bytes, how: str) -> None:
        """A record was read, or acknowledged, at an offset."""
        before = self.records[topic, partition].setdefault(offset, value)
        if before != value:
            raise BrokenPromiseError(
                f"{topic}-{partition} @{offset} was {before!r}, now it is {value!r} ({how})"
            )

    def acknowledged(
        self, topic: str, partition: int, offset: int, value: bytes, *, durable: bool, once: bool
    ) -> None:
        """A write was answered with its offset."""
        self.saw(topic, partition, offset, value, "acknowledged")
        if durable:
            self.durable[topic, partition] = max(self.durable[topic, partition], offset + 1)
        (self.once if once and durable else self.at_most_once).add(value)

    def power_was_lost(self) -> None:
        """What was not durable may be lost, and its offsets may be used again.

        A group that had committed more continues where its log ends now, and not before.
        """
        for claim, offset in self.committed.items():
            self.committed[claim] = min(offset, self.durable[claim[1:]])
        kept = {partition for partition, end in self.durable.items() if end > self.start[partition]}
        before = self.kept_from_the_start
        self.kept_from_the_start = kept if before is None else before & kept
        for partition, found in self.records.items():
            for offset in [offset for offset in found if offset >= self.durable[partition]]:
                del found[offset]

    def truncated(self, topic: str, partition: int, before: int) -> None:
        """Records below an offset were deleted."""
        self.start[topic, partition] = max(self.start[topic, partition], before)

    def check_partition(self, topic: str, partition: int, start: int, values: dict[int, bytes]) -> None:
        """A partition was read from its start to its end: dense, and nothing known is missing."""
        if sorted(values) != list(range(start, start + len(values))):
            raise BrokenPromiseError(
                f"{topic}-{partition}: offsets are not dense: from {start}: {sorted(values)}"
            )
        kept = self.kept_from_the_start is None or (topic, partition) in self.kept_from_the_start
        if start > self.start[topic, partition] and kept:
            raise BrokenPromiseError(
                f"{topic}-{partition} starts at {start}; only {self.start[topic, partition]} was asked for"
            )
        for offset, value in values.items():
            self.saw(topic, partition, offset, value, "read at the end")
        for offset, value in self.records[topic, partition].items():
            if offset >= start and offset not in values:
                raise BrokenPromiseError(f"{topic}-{partition} @{offset}: {value!r} was there and is lost")

    def check_once(self, found: dict[tuple[str, int, int], bytes], deleted: set[bytes]) -> None:
        """Over everything that is in the logs: no value twice, and none missing that must be there."""
        places: dict[bytes, tuple[str, int, int]] = {}
        for place, value in found.items():
            if value in places and (value in self.once or value in self.at_most_once):
                raise BrokenPromiseError(f"{value!r} is a duplicate: {places[value]} and {place}")
            places[value] = place
        missing = self.once - set(places) - deleted
        if missing:
            raise BrokenPromiseError(f"acknowledged and gone: {sorted(missing)[:5]}")

    def check_delivered(self, left: set[bytes]) -> None:
        """The records that are left in the log, and that all groups have read to its end: none was skipped."""
        for group, seen in self.delivered.items():
            if left - seen:
                raise BrokenPromiseError(
                    f"{group} has come to the end of the log and never saw {sorted(left - seen)[:5]}"
                )

    # --- groups --------------------------------------------------------------------------------------------

    def will_commit(self, claim: Claim, offset: int) -> None:
        """A commit is on its way; from now on it may be stored."""
        self.may_be_committed[claim] = max(self.may_be_committed.get(claim, -1), offset)

    def was_committed(self, claim: Claim, offset: int) -> None:
        """A commit was answered."""
        self.committed[claim] = max(self.committed.get(claim, -1), offset)

    def check_committed(self, claim: Claim, at_least: int, offset: int, how: str) -> None:
        """A committed offset was read; `at_least` was confirmed before it was asked for."""
        most = self.may_be_committed.get(claim, -1)
        if not at_least <= offset <= most:
            raise BrokenPromiseError(
                f"{claim}: committed is {offset} ({how}); confirmed was {at_least}, at most {most} was ever sent"
            )

    def owns(self, group: str, generation: int, topic: str, partition: int, member: str) -> None:
        """A member was given a partition in a generation."""
        owner = self.owners.setdefault((group, generation, topic, partition), member)
        if owner != member:
            raise BrokenPromiseError(
                f"{topic}-{partition} belongs to {owner} and {member} in generation {generation} of {group}"
            )
        self.generations[group] = max(self.generations[group], generation)

    def fenced_member_spoke(self, group: str, generation: int, newest: int, what: str) -> None:
        """A member of an old generation was answered without an error; `newest` was known before it asked."""
        if generation < newest:
            raise BrokenPromiseError(
                f"{what} of generation {generation} was taken in generation {newest} of {group}"
            )
