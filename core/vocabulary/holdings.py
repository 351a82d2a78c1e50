"""The sizes of a broker and the lag of groups, for the metrics."""

from __future__ import annotations

from typing import NamedTuple


class TopicTotals(NamedTuple):
    """One topic over all its partitions. `offsets` are records ever written, `kept` those still there.

    `size` is in bytes; None where it is not known.
    """

    name: str
    partitions: int
    size: int | None
    offsets: int
    kept: int


class GroupLag(NamedTuple):
    """The lag of a group in one topic, over the partitions for which it has committed."""

    group: str
    topic: str
    lag: int


class UnstablePartition(NamedTuple):
    """A partition with an open transaction: the offsets from the last stable offset to the high watermark."""

    topic: str
    partition: int
    offsets: int


class Holdings(NamedTuple):
    """What the broker holds. `…_left_out` are those beyond the limits."""

    topics: list[TopicTotals]
    topics_left_out: int
    partitions: int
    open_logs: int
    groups: int
    lags: list[GroupLag]
    lags_left_out: int
    unstable: list[UnstablePartition]
    unstable_left_out: int
    pending_offsets: int
