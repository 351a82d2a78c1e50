"""The FastAPI application: every route that is not lean.

It takes a third of a second and 18 MiB to load, and a gateway whose clients only write and read records never
needs it. So nothing at the start imports this module: the first request for one of its routes does.
"""

from __future__ import annotations

from typing import Any

from fastapi import Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from app.console import routes as console
from app.docs import routes as docs
from app.errors import Problem
from app.http import problem_pages
from app.http.refusals import Refusals
from app.http.request import Answer
from app.native import cluster, consumers, groups, members, roles, topics
from app.native.dependencies import known_parameters_only
from app.native.validation_errors import problem_of_http_error, problem_of_validation
from app.shared import Gateway
from app.version import VERSION
from core.errors import BrokerError

NATIVE_PREFIX = "/api/v1"
DESCRIPTION = (
    "Sluice: a Kafka that you can curl. The native HTTP API of a broker that Kafka clients reach on its binary "
    "port. Every refusal is a problem document (RFC 9457)."
)


def make_fastapi(gateway: Gateway) -> FastAPI:
    """The FastAPI application with all routes that are not lean."""
    app = FastAPI(
        title="Sluice",
        version=VERSION,
        description=DESCRIPTION,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        exception_handlers=_exception_handlers(gateway.refusals),
    )
    app.state.gateway = gateway
    strict = [Depends(known_parameters_only)]
    app.include_router(problem_pages.router)
    app.include_router(console.router)
    app.include_router(docs.router)
    app.include_router(cluster.router, prefix=NATIVE_PREFIX, dependencies=strict)
    app.include_router(topics.router, prefix=NATIVE_PREFIX, dependencies=strict)
    app.include_router(roles.router, prefix=NATIVE_PREFIX, dependencies=strict)
    app.include_router(groups.router, prefix=NATIVE_PREFIX, dependencies=strict)
    app.include_router(members.router, prefix=NATIVE_PREFIX, dependencies=strict)
    app.include_router(consumers.router, prefix=NATIVE_PREFIX, dependencies=strict)
    return app


def _exception_handlers(refusals: Refusals) -> dict[Any, Any]:
    def answer(request: Request, error: Problem | BrokerError) -> Response:
        return _response(refusals.answer(error, request.scope["path"]))

    async def refuse(request: Request, error: Problem | BrokerError) -> Response:
        return answer(request, error)

    async def invalid(request: Request, error: RequestValidationError) -> Response:
        return answer(request, problem_of_validation(error))

    async def http_error(request: Request, error: HTTPException) -> Response:
        return answer(request, problem_of_http_error(error, request))

    async def failure(request: Request, error: Exception) -> Response:
        # Starlette raises the error again once this answer is sent; `HttpApplication` logs it.
        return answer(request, Problem("internal-error", "The server failed; its log says more."))

    return {
        Exception: failure,
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
