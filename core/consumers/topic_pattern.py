"""Patterns over topic names, as clients subscribe to them.

RE2, as Kafka's own brokers take it: no look-around and no back references, and therefore no pattern that keeps
the broker busy, whatever the name.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import re2

from core.errors import BrokerError, ErrorCode


@lru_cache(maxsize=1_000)
def compile_pattern(pattern: str, max_bytes: int) -> Any:
    """The compiled pattern; `matches` of it says whether it covers a whole name.

    Raises INVALID_REGULAR_EXPRESSION for what is no pattern, or takes more than `max_bytes` when compiled.
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
    """Whether the pattern covers the whole name."""
    return compiled.fullmatch(name) is not None
