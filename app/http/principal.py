"""The principal of a request: the name of its client.

The name comes from a client certificate, an Authorization header, or the ticket of an EventSource. A browser's
EventSource cannot send header lines. A password does not belong in a URL, because URLs are kept in histories and
logs. So a page first gets a ticket by a POST with its credentials, and then opens the stream with `?ticket=…`. A
ticket names the principal and one path. It works once, within half a minute. The open stream does not need it any
more; a reconnect needs the next ticket. The ticket is removed from the query here, before a route sees it, and is
never logged.

`create_app` takes a `Resolver`. It is called once for each request, after the Host and Origin rules and before any
route. It returns a name, or raises a Problem (401, 403). Code after it asks `principal_of` for the name: idempotency
keys and shares of waiting requests belong to it. Without a resolver there is no ticket, and `?ticket=` is refused
like any unknown parameter.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from app.http.request import Request, Scope, invalid_parameter
from core.security.principal import ANONYMOUS, Caller, Principal
from core.vocabulary.idempotency import NO_PRINCIPAL

Resolver = Callable[[Request, str | None], Awaitable[str]]
"""Returns the name of the client of a request, from its header lines, or from the ticket in its query."""

PRINCIPAL = "sluice.principal"
# In the scope of a request over TLS whose client has shown a certificate: its core.security.principal.Principal.
CERTIFICATE = "sluice.certificate"
# In the scope of a request with credentials, while it lasts: its core.security.logins.OpenLogin.
LOGIN = "sluice.login"
# In the scope of a request with a token that has a scope of its own: its core.security.scopes.Scope.
TOKEN_SCOPE = "sluice.token.scope"
# In the scope of a request whose client has logged in at the cluster of a gateway: the mark of its credentials.
CREDENTIAL = "sluice.credential"
_TICKET = b"ticket="


def principal_of(scope: Scope) -> str:
    """Return the name of the client of a request."""
    name: str | None = scope.get(PRINCIPAL)
    if name is not None:
        return name
    return str(scope[CERTIFICATE]) if CERTIFICATE in scope else NO_PRINCIPAL


def caller_of(scope: Scope) -> Caller:
    """Return the caller of a request, for the rules on what it may do."""
    name = principal_of(scope)
    principal = ANONYMOUS if name == NO_PRINCIPAL else Principal("User", name.removeprefix("User:"))
    host = (scope.get("client") or ("",))[0]
    return Caller(principal, host, scope=scope.get(TOKEN_SCOPE), credential=scope.get(CREDENTIAL, b""))


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
        raise invalid_parameter("ticket", "The parameter 'ticket' is given more than once.")
    scope["query_string"] = b"&".join(piece for piece in pieces if not piece.startswith(_TICKET))
    return tickets[0][len(_TICKET) :].decode("ascii", "replace")
