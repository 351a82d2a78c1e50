"""When a record is sent again, and what the answer of an endpoint means. Pure: times are arguments.

`Retry-After` is heeded up to a day, as seconds or as an HTTP date (RFC 9110, 10.2.3). A pause gets up to a tenth on
top, so that records that failed together do not come together again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from email.utils import mktime_tz, parsedate_tz
from typing import NamedTuple

from core.vocabulary.webhooks import MAX_RETRY_MS, Verdict

JITTER = 0.1
# An endpoint that says "not so fast" is left alone for this long at most; its records wait as long as it says.
MAX_HOLD_MS = 600_000
# The header by which an endpoint gives a record up (Svix has the same).
DELIVERY_HEADER, ABORT = "webhook-delivery", "abort-message"
# Answers of the client's fault that are about the endpoint, its path or its login, and not about the record.
_OF_ENDPOINT = frozenset({401, 403, 404, 405, 407, 408, 410, 421, 423, 425, 426, 429, 451})
_SLOW_DOWN = frozenset({429, 502, 503, 504})


class Meaning(NamedTuple):
    """What an answer means for its record (`verdict`), and for the endpoint.

    `healthy`: the endpoint works, whatever it says of the record. `hold_ms`: send nothing for so long.
    `retry_after_ms`: the pause of the record at least.
    """

    verdict: Verdict
    healthy: bool
    retry_after_ms: int = 0
    hold_ms: int = 0


NO_ANSWER = Meaning(Verdict.RETRIED, healthy=False)


def meaning(
    status: int, headers: Mapping[str, str], now_ms: int, *, reject_422: bool, reject_4xx: bool
) -> Meaning:
    """Return what an answer means; `headers` have names in lower case."""
    if 200 <= status < 300:
        return Meaning(Verdict.ACCEPTED, healthy=True)
    if headers.get(DELIVERY_HEADER, "").strip().lower() == ABORT:
        return Meaning(Verdict.REJECTED, healthy=True)
    if status == 410:
        return Meaning(Verdict.SWITCHED_OFF, healthy=False)
    healthy = 400 <= status < 500 and status not in _OF_ENDPOINT
    if status == 422 and reject_422:
        return Meaning(Verdict.REJECTED, healthy=True)
    if reject_4xx and 400 <= status < 500 and status not in (408, 425, 429):
        return Meaning(Verdict.REJECTED, healthy=healthy)
    after = retry_after_ms(headers.get("retry-after", ""), now_ms)
    hold = min(after, MAX_HOLD_MS) if status in _SLOW_DOWN else 0
    return Meaning(Verdict.RETRIED, healthy=healthy, retry_after_ms=after, hold_ms=hold)


def retry_after_ms(text: str, now_ms: int) -> int:
    """Return the pause that a header `Retry-After` asks for, a day at most; 0 for what cannot be read."""
    text = text.strip()
    if text.isascii() and text.isdigit():
        return min(int(text[:9]) * 1000, MAX_RETRY_MS)
    moment = parsedate_tz(text)
    if moment is None:
        return 0
    try:
        # Without a zone it is UTC: RFC 9110 allows nothing else.
        seconds = mktime_tz((*moment[:9], moment[9] or 0))
    except (ValueError, OverflowError):
        return 0
    return max(0, min(int(seconds * 1000) - now_ms, MAX_RETRY_MS))


def pause_ms(retries_ms: Sequence[int], delivery_count: int, at_least_ms: int, random: float) -> int:
    """Return the pause after an attempt: by the schedule, at least `at_least_ms`, and up to a tenth on top.

    `random` is in [0, 1).
    """
    planned = retries_ms[min(max(delivery_count, 1), len(retries_ms)) - 1] if retries_ms else 0
    pause = max(planned, at_least_ms)
    return min(MAX_RETRY_MS, pause + int(pause * JITTER * random))
