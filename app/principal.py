"""Who sends a request.

Everybody is the same until there are credentials. This is the one place that will know them: a certificate, an
Authorization header, or the ticket of an EventSource. A browser's EventSource cannot send header lines, and a
password does not belong into a URL, which ends up in histories and logs. So its page will first POST with its
credentials for a ticket, and open the stream with `?ticket=…`. A ticket names the principal and one path, works
once and for half a minute; the stream that it opened goes on without it, and a reconnect needs the next. It is
taken out of the query here, before a route sees it, and never logged.
"""

from __future__ import annotations

from app.requests import Request
from core.broker.idempotency import ANONYMOUS


def principal_of(_request: Request) -> str:
    """The name of whoever sends a request."""
    return ANONYMOUS
