"""Login of the console at an OpenID provider: the browser is sent there, and comes back with a code.

POST /console/session/oidc        from the page: the address to go to, and a cookie that the login belongs to
GET /console/session/callback     from the provider: opens a session, or not, and leads to the console

The cookie of these routes opens nothing. It is `SameSite=Lax`, because the provider's page leads the browser back.
"""

from __future__ import annotations

from fastapi import Request, Response
from pydantic import BaseModel

from app.console.session import check_origin, session_cookie
from app.errors import Problem
from app.http.authentication import ASKS, JWT, LOGIN_PATH
from app.native.dependencies import SharedDep
from core.security.oidc import PENDING_SECONDS

# The only two addresses that a login leads to.
CONSOLE, REFUSED = "/console", "/console#/login-refused"


class Provider(BaseModel):
    """Where the page leads the browser."""

    location: str


async def begin(shared: SharedDep, request: Request, response: Response) -> Provider:
    """Begin a login."""
    check_origin(request)
    if shared.oidc is None or JWT not in request.scope.get(ASKS, ()):
        raise Problem("not-found", "There is no provider of logins here.")
    location, cookie = await shared.oidc.begin()
    response.headers["set-cookie"] = _cookie(request, cookie, PENDING_SECONDS)
    response.headers["cache-control"] = "no-store"
    return Provider(location=location)


async def finish(shared: SharedDep, request: Request) -> Response:
    """Finish a login. The answer leads to the console, whatever was sent."""
    headers = {"cache-control": "no-store", "referrer-policy": "no-referrer"}
    response = Response(status_code=303, headers={**headers, "location": REFUSED})
    response.headers.append("set-cookie", _cookie(request, "", 0))
    pairs = request.query_params.multi_items()
    query = dict(pairs)
    if shared.oidc is None or JWT not in request.scope.get(ASKS, ()) or len(query) != len(pairs):
        return response
    identity = await shared.oidc.finish(request.cookies.get(_name(request), ""), query)
    if identity is not None:
        response.headers["location"] = CONSOLE
        secure = _is_secure(shared.oidc.redirect_uri)
        response.headers.append("set-cookie", session_cookie(request, shared.sessions.open(identity), secure))
    return response


def _name(request: Request) -> str:
    return f"sluice-login-{(request.scope.get('server') or ('', 0))[1]}"


def _cookie(request: Request, value: str, max_age: int) -> str:
    cookie = f"{_name(request)}={value}; Path={LOGIN_PATH}; Max-Age={max_age}; HttpOnly; SameSite=Lax"
    shared = request.app.state.shared
    return cookie + ("; Secure" if shared.oidc is not None and _is_secure(shared.oidc.redirect_uri) else "")


def _is_secure(url: str) -> bool:
    return url.startswith("https:")
