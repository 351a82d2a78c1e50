"""Record batches of a cluster for many readers: one long poll for each leader, windows that all readers share."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from core.client.cluster import ClusterClient
from core.types import AbortedTransaction, LogOffsets, TopicPartition


class Stretch(NamedTuple):
    """Whole batches of one partition, from the one that holds the offset asked for.

    `next_offset` is the offset after them; equal to the offset asked for if there is nothing to read yet. `aborted`
    are the transactions whose records must be dropped, for `core.records.aborted.AbortedRecords`.
    """

    data: memoryview
    next_offset: int
    offsets: LogOffsets
    aborted: tuple[AbortedTransaction, ...] = ()


Arrived = Callable[[TopicPartition], None]


class Fetcher:
    """Windows of batches. `arrived` is called with a partition that has new records, or whose bounds have changed.

    A partition that was read at its end is followed: what is appended arrives without a question, until nothing has
    read it for `fetch_idle_ms`.
    """

    def __init__(self, cluster: ClusterClient, arrived: Arrived = lambda tp: None) -> None: ...

    def at_hand(
        self, tp: TopicPartition, offset: int, *, max_bytes: int, committed: bool = True
    ) -> Stretch | None:
        """Return batches from `offset` on without waiting; None if they are not at hand: `bring` them.

        An empty stretch means that `offset` is the end of a followed partition. Raises what a fetch was refused with
        (UNKNOWN_TOPIC_OR_PARTITION, TOPIC_AUTHORIZATION_FAILED, …) since the last `bring`.
        """
        raise NotImplementedError

    async def bring(
        self, tp: TopicPartition, offset: int, *, max_bytes: int, committed: bool = True
    ) -> Stretch:
        """Return batches from `offset` on, by one Fetch if they are not at hand; it does not wait for new ones.

        Readers of the same offset share the Fetch. From then on the partition is followed. Raises
        OFFSET_OUT_OF_RANGE with `log_start_offset` and `high_watermark` in its details, UNKNOWN_TOPIC_OR_PARTITION,
        TOPIC_AUTHORIZATION_FAILED, LEADER_NOT_AVAILABLE, LinkLost.
        """
        raise NotImplementedError

    def bounds(self, tp: TopicPartition, *, committed: bool = True) -> LogOffsets | None:
        """Return the bounds that the last Fetch of a followed partition told; None if it is not followed."""
        raise NotImplementedError

    async def close(self) -> None:
        """Stop following."""
