"""What a handler of one API is. Each file of this room offers a `HANDLERS` table of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from core.protocol.apis import APIS


class NoAnswerType:
    """The type of `NoAnswer`."""


# What a handler returns when the protocol has no answer at all (Produce with acks=0).
NoAnswer: Final = NoAnswerType()


@dataclass(frozen=True, slots=True)
class Handler:
    """Serves one API: a function of (session, request) that gives the response message, or a coroutine of it.

    `cached` says that answers may be kept by question while topics do not change. `max_version` below the
    codec's own is for versions whose meaning is not served yet.
    """

    key: int
    function: Callable[[Any, Any], Any]
    cached: bool = False
    max_version: int | None = None

    @property
    def versions(self) -> tuple[int, int]:
        """The versions served, both ends included."""
        api = APIS[self.key]
        return api.min_version, api.max_version if self.max_version is None else self.max_version

    def serves(self, version: int) -> bool:
        """Whether this version is served."""
        low, high = self.versions
        return low <= version <= high


def table(*handlers: Handler) -> dict[int, Handler]:
    """The handlers by API key."""
    return {handler.key: handler for handler in handlers}
