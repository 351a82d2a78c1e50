"""Login of the console: a cookie that these routes alone read, and short bearer tokens for the API.

POST /console/session          with Basic or Bearer credentials: opens a session and sets its cookie
POST /console/session/token    with the cookie: a bearer token for five minutes, which the page keeps in its memory
DELETE /console/session        with the cookie: logs out

The API reads no cookie, so no page of another origin can use a session. These three routes take requests of the
console's own page alone: they check `Origin`, and `Sec-Fetch-Site` where the browser sends it.
"""

from __future__ import annotations

from fastapi import Request, Response
from pydantic import BaseModel

from app.errors import Problem
from app.http.authentication import ASKS, IDENTITY, JWT, LOGIN_PATH
from app.http.principal import CERTIFICATE
from app.http.request import Scope
from app.native.dependencies import SharedDep
from core.security.sessions import BEARER_SECONDS, MAX_SECONDS


class PageToken(BaseModel):
    """A bearer token of the console. Without `token` this listener lets the page in as it is."""

    token: str | None = None
    user: str | None = None
    expires_in_seconds: int = BEARER_SECONDS
    # What the page offers after a logout: an OpenID provider, a password or token.
    provider: bool = False
    password: bool = True


async def log_in(shared: SharedDep, request: Request) -> Response:
    """Open a session for the user of the Authorization header. The resolver has checked it."""
    check_origin(request)
    identity = request.scope.get(IDENTITY)
    if identity is None:
        raise Problem("invalid-request", "This listener does not ask clients to log in.")
    session_id = shared.sessions.open(identity)
    return Response(
        status_code=204, headers=_headers(session_cookie(request, session_id, _is_secure(request)))
    )


async def log_out(shared: SharedDep, request: Request) -> Response:
    """End the session of the cookie, with all its bearer tokens."""
    check_origin(request)
    shared.sessions.close(_cookie(request))
    return Response(status_code=204, headers=_headers(session_cookie(request, "", _is_secure(request), 0)))


async def renew(shared: SharedDep, request: Request, response: Response) -> PageToken:
    """Return a bearer token of the session of the cookie."""
    check_origin(request)
    response.headers["cache-control"] = "no-store"
    ways = request.scope.get(ASKS, ())
    offered = {"provider": shared.oidc is not None and JWT in ways, "password": ways != {JWT}}
    found = shared.sessions.bearer(_cookie(request))
    if found is not None:
        token, session = found
        return PageToken(token=token, user=session.user, **offered)
    certificate = request.scope.get(CERTIFICATE)
    if certificate is not None or not ways:
        return PageToken(user=None if certificate is None else certificate.name)
    headers = {"www-authenticate": 'Bearer realm="sluice"', "cache-control": "no-store"}
    raise Problem("unauthenticated", "There is no session: log in.", headers=headers, extra=offered)


def session_cookie(request: Request, session_id: str, secure: bool, max_age: int = MAX_SECONDS) -> str:
    """Return the value of Set-Cookie for a session; `secure` says whether the browser has the page over https."""
    name = _cookie_name(request, secure)
    cookie = f"{name}={session_id}; Path={LOGIN_PATH}; Max-Age={max_age}; HttpOnly; SameSite=Strict"
    return cookie + ("; Secure" if secure else "")


def _headers(cookie: str) -> dict[str, str]:
    return {"set-cookie": cookie, "cache-control": "no-store"}


def _cookie(request: Request) -> str:
    return request.cookies.get(_cookie_name(request, _is_secure(request)), "")


def _cookie_name(request: Request, secure: bool) -> str:
    """Name the cookie by the port, because browsers send it to all ports of a host."""
    port = (request.scope.get("server") or ("", 0))[1]
    return f"{'__Secure-' if secure else ''}sluice-session-{port}"


def _is_secure(request: Request) -> bool:
    # A proxy in front may speak TLS where this listener does not: the browser's own word counts.
    return request.headers.get("origin", "").startswith("https:")


def check_origin(request: Request) -> None:
    """Check where a request comes from. Raises Problem (403) unless the request is one of a page of this server."""
    scope: Scope = request.scope
    scheme, separator, authority = request.headers.get("origin", "").lower().partition("://")
    own = request.headers.get("host", "").lower()
    site = request.headers.get("sec-fetch-site", "same-origin")
    plain_to_tls = scope["scheme"] == "https" and scheme != "https"
    if not separator or authority != own or plain_to_tls or site != "same-origin":
        raise Problem("foreign-origin", "Only the console's own page logs in and out here.")
