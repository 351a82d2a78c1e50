"""The FastAPI application: every route that is not lean.

It takes a third of a second and 18 MiB to load, and a gateway whose clients only write and read records never
needs it. So nothing at the start imports this module: the first request for one of its routes does.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute

from app.console import routes as console
from app.docs import routes as docs
from app.errors import Problem
from app.http.metrics import CLIENT_GONE
from app.http.refusals import Refusals
from app.http.request import Answer, ClientGoneError
from app.native.dependencies import known_parameters_only
from app.native.fastapi_routes import add_routes
from app.native.routes import PREFIX, control_routes, problem_routes
from app.native.validation_errors import problem_of_http_error, problem_of_validation
from app.shared import Shared
from app.version import VERSION
from core.errors import BrokerError


def make_fastapi(shared: Shared) -> FastAPI:
    """The FastAPI application with all routes that are not lean."""
    app = FastAPI(
        title="Sluice",
        version=VERSION,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        exception_handlers=_exception_handlers(shared.refusals),
    )
    app.state.shared = shared
    app.router.routes.extend(_routes())
    return app


@cache
def _routes() -> Sequence[BaseRoute]:
    """Return the routes, which know nothing of an application: to build them takes a quarter of a second.

    A process has one application, but a test or a simulation has hundreds after each other.
    """
    router = APIRouter(redirect_slashes=False)
    add_routes(router, problem_routes())
    router.routes.extend((*console.router.routes, *docs.router.routes))
    add_routes(router, control_routes(), PREFIX, [Depends(known_parameters_only)])
    return router.routes


def _exception_handlers(refusals: Refusals) -> dict[Any, Any]:
    def answer(request: Request, error: Problem | BrokerError) -> Response:
        return _response(refusals.answer(error, request.scope["path"]))

    async def refuse(request: Request, error: Problem | BrokerError) -> Response:
        return answer(request, error)

    async def invalid(request: Request, error: RequestValidationError) -> Response:
        return answer(request, problem_of_validation(error))

    async def http_error(request: Request, error: HTTPException) -> Response:
        return answer(request, problem_of_http_error(error, request))

    async def gone(request: Request, error: ClientGoneError) -> Response:
        # No client receives it; the metrics and the access log have the status.
        return Response(status_code=CLIENT_GONE)

    async def failure(request: Request, error: Exception) -> Response:
        # Starlette raises the error again once this answer is sent; `HttpApplication` logs it.
        return answer(request, Problem("internal-error", "The server failed; its log says more."))

    return {
        Exception: failure,
        ClientGoneError: gone,
        Problem: refuse,
        BrokerError: refuse,
        RequestValidationError: invalid,
        HTTPException: http_error,
    }


def _response(answer: Answer) -> Response:
    response = Response(answer.body, answer.status, media_type=answer.media_type.decode())
    for name, value in answer.headers:
        response.headers[name.decode()] = value.decode("latin-1")
    return response
