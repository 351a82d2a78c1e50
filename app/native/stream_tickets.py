"""Stream tickets over HTTP: for EventSource, which cannot send an Authorization header.

curl -u alice -d '{"path": "/api/v1/topics/orders/records"}' …/stream-tickets     201 with the ticket
new EventSource("…/api/v1/topics/orders/records?from=latest&ticket=…")            opens the stream, once
"""

from __future__ import annotations

from fastapi import Request, Response
from pydantic import BaseModel, Field, StrictStr

from app.errors import Problem
from app.http.authentication import IDENTITY
from app.http.principal import CERTIFICATE
from app.http.request import Scope, decode_path
from app.native.dependencies import SharedDep
from app.native.schemas import Shape
from core.security.passwords import Identity
from core.security.tickets import TICKET_SECONDS

# The one route that EventSource can read, as a URL has it.
_PATH = r"^/api/v1/topics/[^/?#\s]{1,750}/records$"


class StreamToOpen(Shape):
    """The stream that a ticket opens."""

    path: StrictStr = Field(
        description="The path of the stream, as in its URL, without the query: the records of a topic.",
        examples=["/api/v1/topics/orders/records"],
        pattern=_PATH,
    )


class StreamTicket(BaseModel):
    """A ticket. It is shown this once."""

    ticket: str = Field(description="For the parameter `ticket` of the stream.")
    expires_in_seconds: int = Field(description="How long the ticket is valid if it is not used.")


async def create_stream_ticket(
    shared: SharedDep, request: Request, response: Response, wanted: StreamToOpen
) -> StreamTicket:
    """Create a ticket for `EventSource`, which cannot send an `Authorization` header.

    The stream is opened with `?ticket=…` and has the rights of the user of this request. A ticket is valid once, for
    one path, for half a minute, and only on the broker that made it. The stream stays open when the ticket has
    expired.
    """
    identity = _identity_of(request.scope)
    if identity is None:
        raise Problem("invalid-request", "This request has no user: open the stream without a ticket.")
    path = decode_path({"raw_path": wanted.path.encode(), "path": wanted.path})
    response.headers["cache-control"] = "no-store"
    ticket = shared.tickets.issue(identity, path)
    return StreamTicket(ticket=ticket, expires_in_seconds=TICKET_SECONDS)


def _identity_of(scope: Scope) -> Identity | None:
    found: Identity | None = scope.get(IDENTITY)
    if found is None and CERTIFICATE in scope:
        return Identity(scope[CERTIFICATE])
    return found
