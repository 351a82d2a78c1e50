"""The topics as they are at one time, for groups to whose members the broker assigns.

All groups share one catalog. It never changes: after a change of topics the coordinator makes another one. So a
machine sees one state of the topics in one step, and no pattern is matched for each group again.
"""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from core.groups.topic_pattern import compile_pattern, matches

# Patterns whose topics are kept. A pattern that is not kept costs a pass over all names.
_MAX_PATTERNS = 10_000


class TopicCatalog:
    """Topics by name and by id. See `core.groups.machines.Catalog`."""

    __slots__ = ("_matched", "_max_pattern_bytes", "_names", "_shapes")

    def __init__(self, topics: Iterable[tuple[str, UUID, int]], max_pattern_bytes: int = 1 << 20) -> None:
        self._shapes: dict[str, tuple[UUID, int]] = {name: (number, count) for name, number, count in topics}
        self._names: dict[UUID, str] = {number: name for name, (number, _) in self._shapes.items()}
        self._max_pattern_bytes = max_pattern_bytes
        self._matched: dict[str, frozenset[str]] = {}

    def shape(self, topic: str) -> tuple[UUID, int] | None:
        """Return the id and the number of partitions of a topic, or None."""
        return self._shapes.get(topic)

    def name_of(self, topic_id: UUID) -> str | None:
        """Return the name of a topic, or None."""
        return self._names.get(topic_id)

    def matching(self, pattern: str) -> frozenset[str]:
        """Return the topics whose whole name matches an RE2 expression. Raises INVALID_REGULAR_EXPRESSION."""
        found = self._matched.get(pattern)
        if found is None:
            compiled = compile_pattern(pattern, self._max_pattern_bytes)
            found = frozenset(name for name in self._shapes if matches(compiled, name))
            if len(self._matched) < _MAX_PATTERNS:
                self._matched[pattern] = found
        return found
