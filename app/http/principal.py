"""Who sends a request.

Everybody is the same until there are credentials. This is the one place that will know them: a certificate, an
Authorization header, or the ticket of an EventSource. A browser's EventSource cannot send header lines, and a
password does not belong into a URL, which ends up in histories and logs. So its page will first POST with its
credentials for a ticket, and open the stream with `?ticket=…`. A ticket names the principal and one path, works
once and for half a minute; the stream that it opened goes on without it, and a reconnect needs the next. It is
taken out of the query here, before a route sees it, and never logged.

The seam is a `Resolver`, which `create_app` takes. It is asked once for each request, behind the Host and Origin
rules and before any route, and answers a name, or raises a Problem (401, 403). Below it, `principal_of` is the name:
idempotency keys and shares of waiting requests are its. Without a resolver there is no ticket, and `?ticket=` is
refused as any parameter that is not known.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from app.http.request import Request, Scope, invalid_parameter
from core.vocabulary.idempotency import ANONYMOUS

Resolver = Callable[[Request, str | None], Awaitable[str]]
"""The name of whoever sends a request, by its header lines, or by the ticket that its query held."""

PRINCIPAL = "sluice.principal"
_TICKET = b"ticket="


def principal_of(scope: Scope) -> str:
    """The name of whoever sends a request."""
    name: str = scope.get(PRINCIPAL, ANONYMOUS)
    return name


async def resolve(resolver: Resolver, request: Request) -> None:
    """Ask a resolver who sends a request, and keep the answer with it. Raises what the resolver raises."""
    request.scope[PRINCIPAL] = await resolver(request, take_ticket(request.scope))


def take_ticket(scope: Scope) -> str | None:
    """The ticket in a query, which is taken out of it. Raises Problem when there are two."""
    query: bytes = scope["query_string"]
    if _TICKET not in query:
        return None
    pieces = query.split(b"&")
    tickets = [piece for piece in pieces if piece.startswith(_TICKET)]
    if not tickets:
        return None
    if len(tickets) > 1:
        raise invalid_parameter("ticket", "The parameter 'ticket' stands there twice.")
    scope["query_string"] = b"&".join(piece for piece in pieces if not piece.startswith(_TICKET))
    return tickets[0][len(_TICKET) :].decode("ascii", "replace")
