"""Every `type` of a problem document is the address of a page."""

from __future__ import annotations

import httpx
import pytest

from app.errors import KINDS, slug_of
from core.errors import ErrorCode

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_every_problem_has_its_page(http: httpx.AsyncClient) -> None:
    listing = (await http.get("/problems")).text
    for slug in {*KINDS, *map(slug_of, ErrorCode)}:
        assert f'href="/problems/{slug}"' in listing
        page = await http.get(f"/problems/{slug}")
        assert page.status_code == 200
        assert page.headers["content-type"].startswith("text/html")
        assert "<h1>" in page.text and "HTTP status" in page.text


async def test_an_unknown_problem_is_404(http: httpx.AsyncClient) -> None:
    got = await http.get("/problems/<script>")
    assert got.status_code == 404
    assert got.json()["type"] == "/problems/not-found"
