"""The settings of a queue: their limits, and how they are stored."""

from __future__ import annotations

import msgspec

from core.errors import BrokerError, ErrorCode
from core.groups.topic_pattern import compile_pattern
from core.vocabulary.queues import (
    EARLIEST,
    LATEST,
    MAX_DELAY_MS,
    MAX_DELIVERIES,
    MAX_LOCK_MS,
    MIN_LOCK_MS,
    QueueSettings,
    Start,
)

MAX_NAME = 249
MAX_TOPICS = 1_000
MAX_IN_FLIGHT = 1_000_000

encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(QueueSettings).decode


def check_name(name: str) -> None:
    """Raise INVALID_GROUP_ID unless this can be the name of a queue."""
    if not 0 < len(name) <= MAX_NAME or not name.isprintable() or "/" in name:
        raise BrokerError(
            ErrorCode.INVALID_GROUP_ID,
            f"Invalid queue name {name[:60]!r}: use 1 to {MAX_NAME} characters, no '/' and no control characters.",
        )


def check(settings: QueueSettings, pattern_bytes: int) -> None:
    """Raise INVALID_CONFIG for settings out of bounds, INVALID_REQUEST for a queue without topics.

    `pattern_bytes` limits the memory of a compiled pattern. Raises INVALID_REGULAR_EXPRESSION.
    """
    if bool(settings.topics) == (settings.pattern is not None):
        raise BrokerError(ErrorCode.INVALID_REQUEST, "Name the topics of the queue, or a pattern of topics.")
    if len(settings.topics) > MAX_TOPICS:
        raise _invalid("topics", len(settings.topics), f"at most {MAX_TOPICS} names")
    if settings.pattern is not None:
        compile_pattern(settings.pattern, pattern_bytes)
    check_start(settings.start)
    _within("lock_ms", settings.lock_ms, MIN_LOCK_MS, MAX_LOCK_MS)
    if settings.delivery_limit is not None:
        _within("delivery_limit", settings.delivery_limit, 1, MAX_DELIVERIES)
    backoff = settings.backoff
    _within("backoff.first_ms", backoff.first_ms, 0, MAX_DELAY_MS)
    _within("backoff.max_ms", backoff.max_ms, 0, MAX_DELAY_MS)
    if not 1.0 <= backoff.factor <= 100.0:
        raise _invalid("backoff.factor", backoff.factor, "1 to 100")
    if not 0.0 <= backoff.jitter <= 1.0:
        raise _invalid("backoff.jitter", backoff.jitter, "0 to 1")
    _within("max_in_flight", settings.max_in_flight, 1, MAX_IN_FLIGHT)
    _within("max_delay_ms", settings.max_delay_ms, 0, MAX_DELAY_MS)
    if settings.dead_letter is not None:
        if settings.dead_letter.topic in settings.topics:
            raise _invalid(
                "dead_letter.topic", settings.dead_letter.topic, "a topic that the queue does not read"
            )
        if settings.drop:
            raise BrokerError(ErrorCode.INVALID_CONFIG, "Choose either a dead-letter topic or `drop`.")


def check_start(start: Start) -> None:
    """Raise INVALID_CONFIG unless this is a place where a queue can begin."""
    if start.at not in (EARLIEST, LATEST):
        raise _invalid("start", start.at, "earliest, latest, a time, or a group")
    if start.time_ms is not None and start.time_ms < 0:
        raise _invalid("start.time_ms", start.time_ms, "milliseconds since the Unix epoch")


def _within(name: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise _invalid(name, value, f"{least} to {most}")


def _invalid(name: str, value: object, allowed: str) -> BrokerError:
    return BrokerError(ErrorCode.INVALID_CONFIG, f"Invalid {name} {value!r}: use {allowed}.")
