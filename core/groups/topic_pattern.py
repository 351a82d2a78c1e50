"""Topic patterns: RE2 expressions over topic names, and the topics that a subscription names now.

RE2, as in Kafka's brokers (KIP-848): without look-around and back references, so that no pattern takes exponential
time, for any name.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import re2

from core.errors import BrokerError, ErrorCode
from core.facade import Logs
from core.vocabulary.consumers import Subscription


@lru_cache(maxsize=1_000)
def compile_pattern(pattern: str, max_bytes: int) -> Any:
    """Compile a pattern for `matches`; `max_bytes` limits the memory of the compiled form.

    Raises INVALID_REGULAR_EXPRESSION if it is not RE2, or too large.
    """
    options = re2.Options()
    options.max_mem = max_bytes
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0]
        text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise BrokerError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"The topic pattern is no RE2 expression: {text}.",
            pattern=pattern[:200],
        ) from None


def matches(compiled: Any, name: str) -> bool:
    """Return whether the pattern matches the whole name."""
    return compiled.fullmatch(name) is not None


class SubscribedTopics:
    """Finds the topics of subscriptions; caches those of each pattern for one version of the metadata."""

    def __init__(self, broker: Logs) -> None:
        self._broker = broker
        self._matched: dict[str, tuple[str, ...]] = {}
        self._matched_at = -1

    def of(self, subscription: Subscription) -> tuple[str, ...]:
        """Return the topics of a subscription: the named ones, or those that its pattern matches now."""
        if subscription.pattern is None:
            return subscription.topics
        if self._matched_at != self._broker.changes.version:
            self._matched_at = self._broker.changes.version
            self._matched.clear()
        found = self._matched.get(subscription.pattern)
        if found is None:
            compiled = compile_pattern(subscription.pattern, self._broker.config.max_pattern_bytes)
            found = tuple(topic.name for topic in self._broker.topics.list() if matches(compiled, topic.name))
            self._matched[subscription.pattern] = found
        return found
