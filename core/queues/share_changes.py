"""What a share partition changes, as runs of offsets with one state, and as the bytes that are stored of it.

A change is absolute: it says what the records are after it. So a change that the store refused can be left out of
the sequence, and a row may be stored after the state in memory has moved further.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec

from core.vocabulary.queues import Cause

# States of a record. The numbers are stored.
AVAILABLE: Final = 0
LEASED: Final = 1
# Accepted, dropped, archived, or not in the log.
SETTLED: Final = 2
# Given up, and not yet in the dead-letter topic.
ARCHIVING: Final = 3
# Available once its time has come.
DELAYED: Final = 4

# Leases from this number on do not survive a restart: their records are available after it.
VOLATILE: Final = 1 << 31

CAUSES: Final = (Cause.REJECTED, Cause.LIMIT, Cause.EXPIRED, Cause.LOST)


class Cell(NamedTuple):
    """One record: state, number of deliveries, last lease (0: none), time.

    The time is the deadline in ms if LEASED, the time of availability if DELAYED, the index in CAUSES if ARCHIVING,
    and 0 otherwise.
    """

    state: int
    deliveries: int
    lease: int
    time: int


FRESH: Final = Cell(AVAILABLE, 0, 0, 0)
DONE: Final = Cell(SETTLED, 0, 0, 0)


class Run(NamedTuple):
    """Offsets `first` to `last`, both inclusive, that change from one state to another."""

    first: int
    last: int
    before: Cell
    after: Cell


class _Row(msgspec.Struct, array_like=True, frozen=True):
    at_ms: int
    tracked_end: int
    runs: Sequence[tuple[int, int, int, int, int, int]]
    start: int = -1
    reset: bool = False
    nonce: int | None = None
    held: dict[int, int] = {}
    reasons: dict[int, str] = {}


@dataclass(slots=True)
class Change:
    """One change of a share partition. Store `encode()` as one row; the rows of a partition are in order.

    `start` is set by `trim` and `seek` only, else −1; elsewhere the start offset follows from the runs. `reset`
    is a seek: what was known before is dropped. `held` are the times at which leases were first extended. `lost` is
    the number of records that the log lost before they were settled; it is not stored.
    """

    at_ms: int
    tracked_end: int
    runs: list[Run] = field(default_factory=list)
    start: int = -1
    reset: bool = False
    nonce: int | None = None
    held: dict[int, int] = field(default_factory=dict)
    reasons: dict[int, str] = field(default_factory=dict)
    lost: int = 0

    def encode(self) -> bytes:
        """Return the change as the bytes of one row."""
        runs = [(first, last - first + 1, *after) for first, last, _, after in self.runs]
        return _encode(
            _Row(
                self.at_ms,
                self.tracked_end,
                runs,
                self.start,
                self.reset,
                self.nonce,
                self.held,
                self.reasons,
            )
        )


def decode(row: bytes) -> Change:
    """Return the change of a row. What the records were before it is not known: FRESH."""
    found = _decode(row)
    runs = [
        Run(first, first + length - 1, FRESH, Cell(state, count, lease, time))
        for first, length, state, count, lease, time in found.runs
    ]
    return Change(
        found.at_ms, found.tracked_end, runs, found.start, found.reset, found.nonce, found.held, found.reasons
    )


def merged(changes: Sequence[Change | None]) -> Change | None:
    """Return changes of one partition, made one right after the other, as one change: one row. None if none is left.

    A cut, trim or seek is stored by itself.
    """
    left = [change for change in changes if change is not None]
    if len(left) < 2:
        return left[0] if left else None
    whole = Change(left[-1].at_ms, left[-1].tracked_end)
    for change in left:
        whole.runs += change.runs
        whole.held.update(change.held)
        whole.reasons.update(change.reasons)
    return whole


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Row).decode
