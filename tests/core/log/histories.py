"""Histories of transactions in one log, written without a coordinator."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from core.log.log import Log
from core.records.control import EndMarker
from tests.core.log.shelf import append, records

STEPS = st.lists(
    st.tuples(st.sampled_from(["write", "write", "commit", "abort"]), st.integers(0, 3)), max_size=40
)
"""What producers do in turn; producer 0 writes without transactions."""


def write(log: Log, producer_id: int, sequence: int, *values: str, epoch: int = 0) -> int:
    """Append one transactional batch; return its base offset."""
    options = {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": sequence}
    return append(log, records(*values), transactional=True, **options).base_offset


def end(
    log: Log, producer_id: int, *, commit: bool, epoch: int = 0, coordinator: int = 0, bumped: bool = False
) -> int:
    """Append a marker; return its offset, −1 if it was there already."""
    marker = EndMarker(commit, coordinator)
    done = log.append_marker(producer_id, epoch, marker, leader_epoch=0, bumped=bumped)
    return -1 if done is None else done.base_offset


def follow(log: Log, steps: Sequence[tuple[str, int]]) -> tuple[list[tuple[int, bytes, int]], set[int]]:
    """Carry out drawn steps. Return what was written (offset, value, transaction), and what was aborted."""
    written: list[tuple[int, bytes, int]] = []
    aborted: set[int] = set()
    open_now: dict[int, int] = {}
    sequences: dict[int, int] = {}
    for number, (what, producer) in enumerate(steps):
        value = f"{number}" * (1 + number % 40)
        if what == "write" and not producer:
            written.append((append(log, records(value)).base_offset, value.encode(), 0))
        elif what == "write":
            base = write(log, producer, sequences.get(producer, 0), value)
            sequences[producer] = sequences.get(producer, 0) + 1
            written.append((base, value.encode(), open_now.setdefault(producer, number + 1)))
        elif producer in open_now:
            end(log, producer, commit=what == "commit")
            transaction = open_now.pop(producer)
            if what == "abort":
                aborted.add(transaction)
    return written, aborted
