"""A transaction in one request: records for several topics, offsets and acknowledgements, all or nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from core.records.record import NewRecord
from core.records.validation import ProduceBatches
from core.types import TopicPartition
from core.vocabulary.consumers import Range
from core.vocabulary.records import ProduceResult
from core.vocabulary.settlements import OffsetToSettle
from core.vocabulary.transactions import Settlement


class AckToSettle(NamedTuple):
    """The batch of a managed consumer, by its token."""

    group_id: str
    consumer: str
    token: str


class OneShot(NamedTuple):
    """What one request commits. The records are by topic."""

    records: Mapping[str, Sequence[NewRecord]]
    offsets: Sequence[OffsetToSettle] = ()
    acks: Sequence[AckToSettle] = ()


class Committed(NamedTuple):
    """What was committed: the places of the records, in their order, and the ranges of each acknowledged batch."""

    records: Mapping[str, Sequence[ProduceResult]]
    acks: Sequence[Sequence[Range]]


class Draft(NamedTuple):
    """One batch of a topic that is checked and not appended. `indexes` are its records in the request.

    `now_ms` is the time of records without one.
    """

    tp: TopicPartition
    indexes: Sequence[int]
    batch: ProduceBatches
    now_ms: int


Keep = Callable[[bytes], Settlement]
"""Returns the change that stores an answer under the key of a request, for its decision."""
