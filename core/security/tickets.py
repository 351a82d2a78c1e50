"""Stream tickets: by one of them a browser's EventSource, which cannot send a header line, opens one stream.

A ticket names a principal and one path, and is valid once, within half a minute. The broker that made it keeps a
digest of it, in memory alone.
"""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from typing import NamedTuple

from core.clock import Clock
from core.errors import BrokerError, ErrorCode
from core.security.passwords import Identity, PasswordChecks

TICKET_SECONDS = 30
# A page has a few streams. All tickets together take about 4 MiB at most.
MAX_TICKETS, MAX_TICKETS_PER_PRINCIPAL = 10_000, 100


class _Ticket(NamedTuple):
    identity: Identity
    path: str
    standing: object
    until: float


class StreamTickets:
    """The tickets of one process that have not been used. All methods are called on the event loop."""

    def __init__(self, clock: Clock, passwords: PasswordChecks) -> None:
        self._clock = clock
        self._passwords = passwords
        # By digest, the oldest first: all of them are valid for the same time.
        self._tickets: dict[bytes, _Ticket] = {}
        self._held: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._tickets)

    def issue(self, identity: Identity, path: str) -> str:
        """Return a new ticket of a user for one path without its query.

        Raises THROTTLING_QUOTA_EXCEEDED if there are too many that were not used.
        """
        self._expire()
        if (
            len(self._tickets) >= MAX_TICKETS
            or self._held[str(identity.principal)] >= MAX_TICKETS_PER_PRINCIPAL
        ):
            raise BrokerError(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                f"Too many stream tickets have not been used; use one, or try again in {TICKET_SECONDS} seconds.",
            )
        text = base64.urlsafe_b64encode(self._clock.secret_bytes(32)).rstrip(b"=").decode()
        until = self._clock.monotonic() + TICKET_SECONDS
        self._tickets[_digest(text)] = _Ticket(identity, path, self._passwords.standing(identity), until)
        self._held[str(identity.principal)] += 1
        return text

    def use(self, text: str, path: str) -> Identity | None:
        """Return the user of a ticket and forget the ticket; None if it is not valid.

        It ends with the credentials that it was made with: `PasswordChecks.still_valid`. A ticket for another path is
        forgotten as well: it was seen where it does not belong.
        """
        self._expire()
        ticket = self._tickets.get(digest := _digest(text))
        if ticket is None:
            return None
        self._remove(digest)
        fits = ticket.path == path and self._passwords.still_valid(ticket.identity, ticket.standing)
        return ticket.identity if fits else None

    def _expire(self) -> None:
        now = self._clock.monotonic()
        while self._tickets:
            digest, ticket = next(iter(self._tickets.items()))
            if ticket.until > now:
                return
            self._remove(digest)

    def _remove(self, digest: bytes) -> None:
        principal = str(self._tickets.pop(digest).identity.principal)
        self._held[principal] -= 1
        if not self._held[principal]:
            del self._held[principal]


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
