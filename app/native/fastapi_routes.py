"""Rows of FastAPI's routes, added to one of its routers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from fastapi import APIRouter, Depends
from fastapi.params import Depends as Dependency
from pydantic import BaseModel

from app.http.route import Reply, Route
from app.native.dependencies import capability


def add_routes(
    router: APIRouter,
    routes: Iterable[Route[Callable[..., Any]]],
    prefix: str = "",
    dependencies: Sequence[Dependency] = (),
) -> None:
    """Add a route for each row. The router has removed trailing slashes from paths."""
    for route in routes:
        status, answer = next(iter(route.answers.items()))
        shape = answer.shape if isinstance(answer, Reply) else answer
        router.add_api_route(
            (prefix + route.path).removesuffix("/"),
            route.handle,
            methods=[route.method],
            operation_id=route.name,
            status_code=status,
            # Handlers of other answers make their response themselves.
            response_model=shape if isinstance(shape, type) and issubclass(shape, BaseModel) else None,
            dependencies=[*_needs(route), *dependencies],
        )


def _needs(route: Route[Callable[..., Any]]) -> list[Dependency]:
    """Return what refuses a request for a route whose capability the broker does not have."""
    return [Depends(capability(route.needs))] if route.needs else []
