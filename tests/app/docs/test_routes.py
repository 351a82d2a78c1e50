"""/docs and /openapi.json: the whole document, from this server, at whatever address it is."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from app.docs import routes
from app.openapi.document import document

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_the_document_is_the_one_in_the_repository_with_this_server_as_its_place(
    http: httpx.AsyncClient,
) -> None:
    got = await http.get("/openapi.json")
    assert got.headers["content-type"] == "application/json"
    assert got.json() == {**document(), "servers": [{"url": "/"}]}


async def test_swagger_ui_comes_from_the_installed_package(http: httpx.AsyncClient) -> None:
    page = (await http.get("/docs")).text
    for name in routes.SWAGGER_FILES:
        assert f'"/docs/{name}"' in page
        got = await http.get(f"/docs/{name}")
        assert got.status_code == 200
        assert len(got.content) > 100_000
    assert "http" not in page.replace("http-equiv", "")


async def test_without_the_package_the_rest_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "find_spec", lambda name: None)
    assert routes.swagger_files() == {}


async def test_its_code_is_not_loaded() -> None:
    for file in Path(routes.__file__).parent.glob("*.py"):
        assert f"import {routes.CARRIER}" not in file.read_text()
