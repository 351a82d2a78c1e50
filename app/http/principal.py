"""The principal of a request: the name of the client.

All clients have the same name until there are credentials. This is the one place for them: a certificate, an
Authorization header, or the ticket of an EventSource. A browser's EventSource cannot send header lines, and a
password does not belong into a URL, which ends up in histories and logs. So its page will first POST with its
credentials for a ticket, and open the stream with `?ticket=…`. A ticket names the principal and one path, works
once and for half a minute; the stream that it opened goes on without it, and a reconnect needs the next. It is
taken out of the query here, before a route sees it, and never logged.

The seam is a `Resolver`, which `create_app` takes. It is called once for each request, after the Host and Origin
rules and before any route, and returns a name, or raises a Problem (401, 403). Below it, `principal_of` is the name:
idempotency keys and shares of waiting requests are its. Without a resolver there is no ticket, and `?ticket=` is
refused as any parameter that is not known.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from app.http.request import Request, Scope, invalid_parameter
from core.security.principal import ANONYMOUS as NOBODY
from core.security.principal import Caller, Principal
from core.vocabulary.idempotency import ANONYMOUS

Resolver = Callable[[Request, str | None], Awaitable[str]]
"""Returns the name of the client of a request, from its header lines, or from the ticket in its query."""

PRINCIPAL = "sluice.principal"
_TICKET = b"ticket="


def principal_of(scope: Scope) -> str:
    """Return the name of the client of a request."""
    name: str = scope.get(PRINCIPAL, ANONYMOUS)
    return name


def caller_of(scope: Scope) -> Caller:
    """Return the caller of a request, for the rules on what it may do."""
    name = principal_of(scope)
    principal = NOBODY if name == ANONYMOUS else Principal("User", name)
    return Caller(principal, (scope.get("client") or ("",))[0])


async def resolve(resolver: Resolver, request: Request) -> None:
    """Ask a resolver for the name of the client, and keep it in the scope. Raises what the resolver raises."""
    request.scope[PRINCIPAL] = await resolver(request, take_ticket(request.scope))


def take_ticket(scope: Scope) -> str | None:
    """Remove the ticket from a query and return it. Raises Problem when there are two."""
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
