"""The time of the event loop that requests over HTTP take, for the quota `request_percentage` (KIP-124).

A request is charged for each of its steps between two waits, from the moment its user is known; what came before,
such as the parsing of its credentials, is charged then. 100 percent is the whole of the one event loop, as on the
Kafka listener, and both listeners share the bucket of a user. A user beyond the quota gets 429 with `Retry-After`, at
most a second; streams wait instead, see `core.security.meter`.

The time of a refusal counts as well, but it does not make the wait longer: a client that asks too early is served
once a second, and a client that asks all the time gains nothing.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar

from app.http.principal import caller_of
from app.http.request import Scope
from core.clock import Clock
from core.security.meter import exceeded
from core.security.quotas import QuotaTable
from core.vocabulary.quotas import REQUEST_PERCENTAGE

T = TypeVar("T")
# The key in the ASGI scope under which a request has its `Share`, while any client has a quota of time.
SHARE = "sluice.share"
# A supervisor that gets 429 would restart the broker.
_PROBES = frozenset({"/livez", "/readyz", "/healthz"})


@types.coroutine
def _measured(
    work: Coroutine[Any, Any, Any], now: Callable[[], float], charge: Callable[[float], None]
) -> Generator[Any, Any, Any]:
    """Pass the futures that `work` awaits on to the task around it. Charge each step, by when it has begun."""
    started = now()
    try:
        waits_for = work.send(None)
        while True:
            charge(started)
            try:
                got = yield waits_for
            except BaseException as error:
                started = now()
                waits_for = work.throw(error)
            else:
                started = now()
                waits_for = work.send(got)
    except StopIteration as end:
        return end.value
    finally:
        charge(started)


class Share:
    """The time of one request. Nothing is charged before `admit`, nor to a client without a quota."""

    __slots__ = ("_clock", "_refused", "_seconds", "_table", "_user")

    def __init__(self, table: QuotaTable, clock: Clock) -> None:
        self._table = table
        self._clock = clock
        self._user: str | None = None
        self._refused = False
        # Seconds that are not charged yet.
        self._seconds = 0.0

    def admit(self, scope: Scope) -> None:
        """Charge the user of the request from now on. Raises THROTTLING_QUOTA_EXCEEDED while it must wait."""
        if scope["path"] in _PROBES:
            return
        self._user = caller_of(scope).principal.name
        now = self._clock.monotonic()
        window = self._table.time_window(self._user, now)
        if window is not None and (wait := window.wait(now)) > 0:
            self._refused = True
            raise exceeded(REQUEST_PERCENTAGE, window.bound, wait)

    async def timed(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the outcome of `work`, and charge its steps."""
        outcome: T = await _measured(work, self._clock.monotonic, self._charge)
        return outcome

    def _charge(self, started: float) -> None:
        now = self._clock.monotonic()
        self._seconds += now - started
        if self._user is None:
            return
        window = self._table.time_window(self._user, now)
        if window is not None:
            count = window.add if self._refused else window.record
            count(self._seconds * 100, now)
        self._seconds = 0.0
