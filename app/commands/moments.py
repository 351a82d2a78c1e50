"""Points in a partition as one writes them on a command line: offsets, times, counts from the end.

earliest, latest        the first record that is there, the end
1500                    this offset
-10                     ten records before the end (of each partition)
15m, 2h, 7d             that time ago (ms, s, m, h, d, w)
2025-01-31T12:00:00Z    this time; UTC if it has no offset
@1738324800             this time in seconds since 1970, or in milliseconds from twelve digits on
"""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

import click

_DURATION = re.compile(r"-?([0-9]{1,9})(ms|s|m|h|d|w)(?: ago)?")
_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Twelve digits of seconds lie 29,000 years ahead, as milliseconds in 1973.
_MILLISECOND_DIGITS = 12
_MAX = 2**63 - 1
FORMS = (
    "earliest, latest, an offset, -N (N before the end), a time (2025-01-31T12:00Z) or an age (15m, 2h, 7d)"
)


class Moment(NamedTuple):
    """A point in a partition. `value` is an offset, a count of records, or milliseconds since 1970."""

    kind: Literal["earliest", "latest", "offset", "back", "time"]
    value: int = 0

    @property
    def at(self) -> str:
        """As the API's `at` parameter has it; not for `offset` and `back`."""
        return str(self.value) if self.kind == "time" else self.kind


def parse_moment(text: str, now_ms: int) -> Moment:
    """Return the moment of a text. Raises ValueError with a sentence for the user."""
    word = text.strip()
    if word in ("earliest", "beginning", "start"):
        return Moment("earliest")
    if word in ("latest", "end"):
        return Moment("latest")
    if _is_number(word):
        return Moment("offset", int(word))
    if word.startswith("-") and _is_number(word[1:]):
        return Moment("back", int(word[1:]))
    if word.startswith("@") and _is_number(word[1:]):
        number = int(word[1:])
        return Moment("time", number if len(word) > _MILLISECOND_DIGITS else number * 1000)
    if match := _DURATION.fullmatch(word):
        return Moment("time", max(0, now_ms - int(match[1]) * _UNIT_MS[match[2]]))
    try:
        moment = datetime.fromisoformat(word)
        since = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH
    except (ValueError, OverflowError):
        raise ValueError(f"{text!r} is not one of: {FORMS}.") from None
    ms = (since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000
    if ms < 0:
        raise ValueError(f"{text!r} lies before 1970.")
    return Moment("time", ms)


def parse_duration(text: str) -> int:
    """Return the milliseconds of a duration such as `15m`. Raises ValueError with a sentence for the user."""
    match = re.fullmatch(r"([0-9]{1,9})(ms|s|m|h|d|w)", text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a duration such as 30s, 15m, 2h or 7d.")
    return int(match[1]) * _UNIT_MS[match[2]]


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 19 and int(text) <= _MAX


class MomentType(click.ParamType):  # type: ignore[type-arg]
    """A moment as an option's value."""

    name = "moment"

    def __init__(self, *kinds: str) -> None:
        self._kinds = kinds

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Moment:
        """The moment, or a usage error."""
        if isinstance(value, Moment):
            return value
        try:
            moment = parse_moment(value, time.time_ns() // 1_000_000)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if self._kinds and moment.kind not in self._kinds:
            self.fail(f"{value!r} cannot be used here; it takes {', '.join(self._kinds)}.", param, ctx)
        return moment


class DurationType(click.ParamType):  # type: ignore[type-arg]
    """A duration as an option's value, in milliseconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The milliseconds, or a usage error."""
        if isinstance(value, int):
            return value
        try:
            return parse_duration(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)
