"""What tasks tell the driver: what they have written, and in which transaction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pipeline.sink.marks import NO_BATCH, Writer
from pipeline.wire.cluster import TopicPartition
from pipeline.wire.transactions import Transaction


class Batch(NamedTuple):
    """What is written all or nothing: a micro-batch of a query, or one `df.write` (number 0 unless it has one)."""

    query: str
    number: int

    @classmethod
    def of(cls, writer: Writer) -> Batch:
        """Return the batch that a task belongs to."""
        return cls(writer.query, 0 if writer.batch == NO_BATCH else int(writer.batch))

    @property
    def prefix(self) -> str:
        """What the transactional ids of this batch begin with, and no others."""
        return f"{self.query_prefix}{self.number}/"

    @property
    def query_prefix(self) -> str:
        """What the transactional ids of all batches of the query begin with."""
        return f"spark/{self.query}/"

    def transactional_id(self, writer: Writer) -> str:
        """Return the id of one attempt of one task. The same attempt after a restart takes it over."""
        return f"{self.prefix}{writer.task}/{writer.attempt}"


class Written(NamedTuple):
    """What a task has written: records by partition, and the open transaction that they are in, if they are in one.

    `skipped`: it has written nothing, because its batch is there already. `batch` is None with at-least-once.
    """

    records: Mapping[TopicPartition, int]
    batch: Batch | None = None
    transaction: Transaction | None = None
    skipped: bool = False
