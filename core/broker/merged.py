"""The verbs of those who read many partitions of one topic together: the bounds of all, and waiting for any.

A merged reader looks at every partition, finds nothing, and waits in the same turn of the event loop. So any
event on the topic afterwards means that looking again is worth while, and the wait needs no check of its own:
5,000 readers of 100 partitions are woken without 500,000 comparisons.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

from core.broker.records import RecordVerbs
from core.types import LogOffsets, TopicPartition


class MergedVerbs(RecordVerbs):
    """What reads over several partitions need beside `read_now`."""

    def bounds(self, topic: str, partitions: Iterable[int]) -> list[LogOffsets]:
        """The bounds of some partitions of a topic, in their order; UNKNOWN_TOPIC_OR_PARTITION."""
        return [self.log(TopicPartition(topic, partition)).offsets for partition in partitions]

    async def wait_for_topic(
        self, topic: str, partitions: Sequence[int] | None, seconds: float, token: Hashable
    ) -> bool:
        """Wait until something is appended to the topic, it grows or goes; at most `seconds`.

        With `partitions`, only what happens to these counts. `wake(token)` ends the wait as well. True when
        something happened, False at the deadline or when the broker drains. Raises
        THROTTLING_QUOTA_EXCEEDED when too many wait already. The caller must have looked before, in the same
        turn of the event loop, or an append in between is missed.
        """
        if partitions is None:
            keys: list[Hashable] = [topic, token]
        else:
            keys = [*(TopicPartition(topic, partition) for partition in partitions), token]
        return await self.purgatory.wait(keys, seconds, _always)

    def wake(self, token: Hashable) -> None:
        """End the wait that was begun with this token, if it still waits."""
        self.purgatory.notify(token)


def _always() -> bool:
    return True
