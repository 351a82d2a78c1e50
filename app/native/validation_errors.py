"""FastAPI's own refusals (validation, 404, 405) as problems, with the words of this API."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.routing import Match

from app.errors import KINDS, Problem, field_error
from app.http.route import method_not_allowed

MAX_ERRORS = 20
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
_BY_STATUS = {kind.status: name for name, kind in KINDS.items()}


def problem_of_validation(error: RequestValidationError) -> Problem:
    """422 with every fault and its place; 400 where the body is no JSON at all."""
    faults = list(error.errors())[:MAX_ERRORS]
    errors = [_entry(fault) for fault in faults]
    malformed = any(fault.get("type") == "json_invalid" for fault in faults)
    first = errors[0] if errors else {"detail": "The request is not acceptable."}
    place = first.get("parameter") or first.get("field")
    detail = f"{place}: {first['detail']}" if place else str(first["detail"])
    return Problem("malformed-request" if malformed else "invalid-request", detail, errors=errors)


def _entry(fault: Mapping[str, Any]) -> dict[str, object]:
    place, *steps = fault.get("loc") or ("body",)
    message = str(fault.get("msg", "not acceptable"))
    detail = message[:1].upper() + message[1:] + ("" if message.endswith(".") else ".")
    if place in ("query", "path", "header"):
        return field_error(detail, parameter=str(steps[0]) if steps else str(place))
    # In a union pydantic puts the name of the branch into the path; it is no part of the body.
    steps = [step for step in steps if not (isinstance(step, str) and "[" in step)]
    pointer = "#" + "".join(f"/{str(step).replace('~', '~0').replace('/', '~1')}" for step in steps)
    field = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps).removeprefix(".")
    return field_error(detail, pointer=pointer, **({"field": field} if field else {}))


def problem_of_http_error(error: HTTPException, request: Request) -> Problem:
    """Starlette's 404 and 405, and what else it may raise, in our words."""
    if error.status_code == 404:
        return Problem("not-found", f"Nothing is at {request.url.path[:200]!r}.")
    if error.status_code == 405:
        return method_not_allowed(request.method, allowed_methods(request))
    kind = _BY_STATUS.get(error.status_code)
    if kind is None:
        kind = "internal-error" if error.status_code >= 500 else "malformed-request"
        return Problem(kind, HTTPStatus(error.status_code).phrase + ".", status=error.status_code)
    return Problem(kind, f"{error.detail}.")


def allowed_methods(request: Request) -> set[str]:
    """The methods that this path takes, over all routes."""
    routes = request.app.router.routes
    return {
        method
        for method in METHODS
        if any(route.matches({**request.scope, "method": method})[0] is Match.FULL for route in routes)
    }
