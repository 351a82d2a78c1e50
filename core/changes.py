"""Events of topics, for caches of answers about them and for requests that wait for the next event.

Two numbers save work. `version` rises with each change of an answer about topics: a cache compares it. `touched` has
one number for each topic, another one after each append to it and each change of it: a reader of all partitions
compares it before it looks at any of them.

A merged reader looks at every partition, finds nothing, and waits in the same turn of the event loop. So any event on
the topic afterwards makes another look worth while, and the wait needs no check of its own: 5,000 readers of 100
partitions are woken without 500,000 comparisons.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from core.purgatory import Purgatory
from core.types import TopicPartition


class TopicChanges:
    """The events on the topics of one broker. Touched on the event loop only."""

    def __init__(self, purgatory: Purgatory) -> None:
        self._purgatory = purgatory
        # Rises whenever an answer about topics would change: the key of every cache of such answers.
        self.version = 0
        # Called whenever topics or their settings change.
        self.listeners: list[Callable[[], None]] = []
        # The number of the newest event, and for each topic that of its newest event.
        self.event = 0
        self.touched: dict[str, int] = {}

    def answers_changed(self) -> None:
        """Note that answers about topics change, though no topic has: a leader, an in-sync set, an address."""
        self.version += 1

    def topics_changed(self) -> None:
        """Note that a topic or its settings have changed, and call the listeners."""
        self.version += 1
        for listener in self.listeners:
            listener()

    def touch(self, topic: str) -> None:
        """Note an event on a topic or on one of its partitions, and wake the waits for all of its partitions."""
        self.event += 1
        self.touched[topic] = self.event
        self._purgatory.notify(topic)

    def forget(self, topic: str) -> None:
        """Note that a topic is deleted, and wake the waits for all of its partitions."""
        self.event += 1
        self.touched.pop(topic, None)
        self._purgatory.notify(topic)

    async def wait_for(
        self, topic: str, partitions: Sequence[int] | None, seconds: float, token: Hashable
    ) -> bool:
        """Wait until records are appended to the topic, or it grows or is deleted; at most `seconds`.

        With `partitions`, only events on these count. `wake(token)` ends the wait as well. Return True after an
        event, False at the deadline or when the broker drains. Raises THROTTLING_QUOTA_EXCEEDED when too many
        requests wait already. The caller must have looked before, in the same turn of the event loop, or it misses
        an append in between.
        """
        if partitions is None:
            keys: list[Hashable] = [topic, token]
        else:
            keys = [*(TopicPartition(topic, partition) for partition in partitions), token]
        return await self._purgatory.wait(keys, seconds, _always)

    def wake(self, token: Hashable) -> None:
        """End the wait that was begun with this token, if it still waits."""
        self._purgatory.notify(token)


def _always() -> bool:
    return True
