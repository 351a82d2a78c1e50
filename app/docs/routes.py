"""All URLs of the documentation: /docs is Swagger UI, from an installed package; /openapi.json is what it shows."""

from __future__ import annotations

import asyncio
import json
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from fastapi import APIRouter, Request, Response

from app.docs.assets import POLICY, Assets

router = APIRouter(include_in_schema=False)

PAGE = Path(__file__).parent / "page"
# The package that carries Swagger UI's files. It is not imported: it would patch nothing, but load much.
CARRIER = "fastapi_offline"
SWAGGER_FILES = ("swagger-ui.css", "swagger-ui-bundle.js")


def swagger_files() -> dict[str, Path]:
    """Swagger UI's own files; none where the package is missing, and then /docs alone does not work."""
    spec = find_spec(CARRIER)
    places = [Path(place) / "static" for place in (spec.submodule_search_locations or ())] if spec else []
    return {name: place / name for place in places for name in SWAGGER_FILES}


assets = Assets({file.name: file for file in sorted(PAGE.iterdir())} | swagger_files(), POLICY)


@router.get("/docs")
async def get_docs(request: Request) -> Response:
    """The page."""
    return await assets.answer(request, "index.html")


@router.get("/docs/{name}")
async def get_docs_file(request: Request, name: str) -> Response:
    """One of its files."""
    return await assets.answer(request, name)


@router.get("/openapi.json")
async def get_openapi_document() -> Response:
    """The OpenAPI document, for this server at whatever address it was asked."""
    return Response(await asyncio.to_thread(_document), media_type="application/json")


@cache
def _document() -> bytes:
    # Loaded by the first request for the document: most gateways never make it.
    from app.openapi.document import document

    return json.dumps({**document(), "servers": [{"url": "/"}]}, ensure_ascii=False).encode()
