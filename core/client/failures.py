"""Failures of the client itself, and Kafka's codes in answers."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from msgspec import Struct
from msgspec.structs import fields

from core.errors import BrokerError, ErrorCode


class LinkLost(BrokerError):  # noqa: N818 (what happened, not what is wrong)
    """A connection that could not be made, or ended before the answer: NETWORK_EXCEPTION.

    `sent`: the request was written, so that the broker may have carried it out.
    """

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(ErrorCode.NETWORK_EXCEPTION, message)
        self.sent = sent


def error_code(number: int) -> ErrorCode:
    """Return the code of a number in an answer; UNKNOWN_SERVER_ERROR for one that is not known here."""
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def refused(number: int, where: str, message: str | None = None) -> BrokerError:
    """Return the error of an answer as an exception; `where` names the request."""
    code = error_code(number)
    text = f"{where}: {message or code.name}"
    return BrokerError(code, text if code.value == number else f"{text} (error {number})")


def codes_of(answer: Struct) -> Iterator[int]:
    """Return the error codes of an answer that are not NONE: its own, and those of its entries, all levels down."""
    codes, lists = _fields_of(type(answer))
    for name in codes:
        if code := getattr(answer, name):
            yield code
    for name in lists:
        for entry in getattr(answer, name) or ():
            if isinstance(entry, Struct):
                yield from codes_of(entry)


@cache
def _fields_of(message: type[Struct]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of the fields that are error codes, and of those that are lists."""
    every = fields(message)
    codes = tuple(field.name for field in every if field.name.endswith("error_code"))
    return codes, tuple(field.name for field in every if "list[" in str(field.type))
