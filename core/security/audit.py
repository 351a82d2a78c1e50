"""The audit log: logins, failed logins, denials, and the changes of administrators.

Each event is one record of the logger `sluice.audit`, with its members as `fields`. The facade with rights, the
authorizer and the authenticators are its only sources. Names of clients are cut to a bounded length; passwords,
tokens and bytes of records never get here.

    login      a user has logged in, or has failed to
    denied     a right was missing
    change     a user, token, access rule, topic, setting or role was changed, or a change has failed
    dropped    how many of the first two were left out: a flood of them must not fill the disk

Changes are never left out.
"""

from __future__ import annotations

import logging
from collections.abc import Container
from contextvars import ContextVar
from typing import NamedTuple

from core.clock import Clock
from core.config import Config

AUDIT = "sluice.audit"
log = logging.getLogger(AUDIT)

_MAX_FIELD = 500
# A client of HTTP logs in with each request: one event in this time for each user, address and mechanism.
_REPEAT_SECONDS = 3_600
_MAX_REMEMBERED = 10_000


class Source(NamedTuple):
    """What a request has come by: the scheme of its listener, and how its client has logged in."""

    listener: str = ""
    mechanism: str = ""


_NO_SOURCE = Source()
SOURCE: ContextVar[Source] = ContextVar("audit_source", default=_NO_SOURCE)
"""The source of the request that this code runs for. Listeners set it before they call the broker."""


class Audit:
    """The audit log of one broker. `users` are the names that there are. Called on the event loop.

    Without `audit_log` it is silent until there is an authorizer: on an open broker all is allowed.
    """

    def __init__(self, config: Config, clock: Clock, users: Container[str]) -> None:
        self._clock = clock
        self._users = users
        self._always = config.audit_log is not None
        self._rate = config.audit_events_per_second
        self._left = float(self._rate)
        self._refilled = clock.monotonic()
        self._dropped = 0
        self._seen: dict[tuple[str, str, str], float] = {}
        self.enabled = False

    def login(self, principal: str, mechanism: str, address: str, *, repeated: bool = False) -> None:
        """Note a login. `repeated`: the client logs in with each request; one an hour is noted."""
        if repeated:
            key, now = (principal, mechanism, address), self._clock.monotonic()
            if self._seen.get(key, float("-inf")) > now - _REPEAT_SECONDS:
                return
            if len(self._seen) >= _MAX_REMEMBERED:
                self._seen.clear()
            self._seen[key] = now
        self._bounded("login", decision="allowed", principal=principal, mechanism=mechanism, address=address)

    def failed_login(self, claimed: str, mechanism: str, address: str) -> None:
        """Note a login that has failed. What is no name of a user is left out: it may be a mistyped password."""
        principal = f"User:{claimed}" if claimed in self._users else ""
        self._bounded("login", decision="denied", principal=principal, mechanism=mechanism, address=address)

    def denied(self, principal: str, address: str, operation: str, resource: str, rule: str) -> None:
        """Note a right that is missing. `rule` is the access rule that denies; empty if none allows."""
        self._bounded(
            "denied", decision="denied", principal=principal, address=address, operation=operation,
            resource=resource, rule=rule or "none allows",
        )  # fmt: skip

    def change(self, principal: str, address: str, operation: str, resource: str, error: str = "") -> None:
        """Note a change, or with `error` one that has failed."""
        if self._always or self.enabled:
            decision = "failed" if error else "allowed"
            self._write(
                "change", decision=decision, principal=principal, address=address, operation=operation,
                resource=resource, error=error,
            )  # fmt: skip

    def tell_dropped(self) -> None:
        """Note how many events were left out since the last time, once another event may be written."""
        if self._dropped and self._take():
            count, self._dropped = self._dropped, 0
            self._write("dropped", count=str(count))

    def _bounded(self, event: str, **fields: str) -> None:
        if not (self._always or self.enabled):
            return
        self.tell_dropped()
        if self._take():
            self._write(event, **fields)
        else:
            self._dropped += 1

    def _take(self) -> bool:
        now = self._clock.monotonic()
        self._left = min(self._rate, self._left + (now - self._refilled) * self._rate)
        self._refilled = now
        if self._left < 1:
            return False
        self._left -= 1
        return True

    def _write(self, event: str, **fields: str) -> None:
        source = SOURCE.get()
        known = {"event": event, "listener": source.listener, "mechanism": source.mechanism, **fields}
        log.info("", extra={"fields": {name: cut(value) for name, value in known.items() if value}})


def cut(text: str) -> str:
    """Return a text that a client has chosen, of a bounded length."""
    return text if len(text) <= _MAX_FIELD else text[:_MAX_FIELD] + "…"
