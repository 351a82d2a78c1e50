"""Waits for records of the cluster: a partition is followed as long as a request waits for it.

All waits of a gateway are in one purgatory, and their keys name what they wait for: a partition, or a topic with all
of its partitions. The first wait for a key begins to follow it, so that 5,000 waits for a topic cost what one costs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable

from core.purgatory import Purgatory

Follow = Callable[[Hashable], None]


class FollowingPurgatory(Purgatory):
    """A purgatory that calls `follow` with a key when its first wait begins."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self.follow: Follow = lambda key: None

    async def wait(self, keys: Iterable[Hashable], timeout: float, check: Callable[[], bool]) -> bool:
        """See `Purgatory.wait`."""
        wanted = tuple(keys)
        if timeout > 0:
            for key in wanted:
                if key not in self._waits:
                    self.follow(key)
        return await super().wait(wanted, timeout, check)

    def awaited(self) -> Collection[Hashable]:
        """Return the keys that requests wait for."""
        return self._waits.keys()
