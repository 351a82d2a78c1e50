"""The header that shows duplicates: the query, batch, task and row that wrote a record.

Spark runs a task again when it fails, and a micro-batch again after a crash. The same row then gets the same mark, if
the query gives the same rows in the same order again, as reads of topics do. A reader that keeps the first record of
each mark reads every row once.
"""

from __future__ import annotations

from typing import NamedTuple

HEADER = "sluice.written"
"""The name of the header; its value is `query/batch/task/sequence` in ASCII."""

NO_BATCH = "-"
"""The batch number in records that `df.write` wrote, unless its options name one."""


class Writer(NamedTuple):
    """The writer: the query's id, its batch, the task's partition number, and which attempt of the task it is."""

    query: str
    batch: str
    task: int
    attempt: int = 0

    def mark(self, sequence: int) -> bytes:
        """The mark of the row with this number in the task, from 0."""
        return b"%s/%s/%d/%d" % (self.query.encode(), self.batch.encode(), self.task, sequence)


class Mark(NamedTuple):
    """A mark that was read."""

    query: str
    batch: str
    task: int
    sequence: int


def parse(value: bytes) -> Mark:
    """The mark out of a header's value. Raises ValueError for what is none."""
    query, batch, task, sequence = value.decode("ascii").split("/")
    return Mark(query, batch, int(task), int(sequence))
