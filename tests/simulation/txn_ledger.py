"""What transactions have written, and what became of them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from tests.simulation.ledger import BrokenPromiseError


@dataclass
class Written:
    """One transaction. `outcome`: whether it was committed; None as long as that is not known.

    `offset` is what it has staged for its producer's partition of the group; −1 if nothing.
    """

    name: str
    values: dict[bytes, int] = field(default_factory=dict)
    outcome: bool | None = None
    offset: int = -1


@dataclass
class Transactions:
    """What all transactions of a run have written, and what became of them."""

    all: list[Written] = field(default_factory=list)
    of: dict[bytes, Written] = field(default_factory=dict)
    # What was staged for each partition of the group; the offsets of a partition rise.
    staged: dict[int, list[Written]] = field(default_factory=lambda: defaultdict(list))

    def saw(self, values: set[bytes], how: str) -> None:
        """A reader of committed records was given these values."""
        for value in values:
            if self.of[value].outcome is False:
                raise BrokenPromiseError(f"{how}: {value!r} of an aborted transaction was read")

    def committed(self) -> set[str]:
        """The transactions whose commit was answered by now."""
        return {one.name for one in self.all if one.outcome}

    def check_offset(self, partition: int, offset: int, committed: set[str], how: str) -> None:
        """A committed offset was read; `committed` were answered before it was asked for."""
        least = max((one.offset for one in self.staged[partition] if one.name in committed), default=-1)
        if offset < least:
            raise BrokenPromiseError(
                f"{how}: committed is {offset} for {partition}, and {least} was answered"
            )
        source = next((one for one in self.staged[partition] if one.offset == offset), None)
        if offset >= 0 and (source is None or source.outcome is False):
            raise BrokenPromiseError(f"{how}: {offset} for {partition} was staged by {source}")

    def check_whole(self, seen: set[bytes], committed: set[str], how: str) -> None:
        """A reader has all partitions to their ends, where nothing is open: all of a transaction or nothing.

        `committed` were answered before it asked.
        """
        for one in self.all:
            there = sum(value in seen for value in one.values)
            if there and there != len(one.values):
                raise BrokenPromiseError(
                    f"{how}: {there} of {len(one.values)} records of {one.name} were read"
                )
            if one.name in committed and one.values and not there:
                raise BrokenPromiseError(f"{how}: nothing of {one.name} is there, which was committed")
            if there and one.outcome is False:
                raise BrokenPromiseError(f"{how}: {one.name} was aborted and is there")

    def check_offset_is_of(self, partition: int, offset: int, seen: set[bytes]) -> None:
        """The committed offset is of the last transaction with records that were read, which has staged one.

        For histories in which each transaction has records.
        """
        there = [one.offset for one in self.staged[partition] if seen.issuperset(one.values)]
        if offset != max(there, default=-1):
            raise BrokenPromiseError(
                f"committed is {offset} for {partition}, and the records are those of {there[-1:]}"
            )
