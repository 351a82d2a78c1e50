"""Files of pages: their headers, their ETags, and that nothing else can be reached through them."""

from __future__ import annotations

import httpx
import pytest

pytestmark = pytest.mark.asyncio(loop_scope="module")

PAGES = ["/console", "/docs"]
FILES = [
    "/console/console.css",
    "/console/console.js",
    "/console/icon.svg",
    "/docs/docs.js",
    "/docs/swagger-ui.css",
]


@pytest.mark.parametrize("path", PAGES + FILES)
async def test_each_has_a_policy_that_lets_nothing_foreign_in(http: httpx.AsyncClient, path: str) -> None:
    got = await http.get(path)
    assert got.status_code == 200
    policy = dict(part.strip().split(" ", 1) for part in got.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert got.headers["x-content-type-options"] == "nosniff"
    assert got.headers["referrer-policy"] == "no-referrer"
    assert "x-request-id" in got.headers


@pytest.mark.parametrize(
    ("path", "media_type"),
    [
        ("/console", "text/html; charset=utf-8"),
        ("/console/", "text/html; charset=utf-8"),
        ("/console/console.css", "text/css; charset=utf-8"),
        ("/console/console.js", "text/javascript; charset=utf-8"),
        ("/console/icon.svg", "image/svg+xml"),
    ],
)
async def test_each_says_what_it_is(http: httpx.AsyncClient, path: str, media_type: str) -> None:
    assert (await http.get(path)).headers["content-type"] == media_type


async def test_a_file_that_the_browser_has_is_not_sent_again(http: httpx.AsyncClient) -> None:
    first = await http.get("/console/console.js")
    again = await http.get("/console/console.js", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["etag"] == first.headers["etag"]
    other = await http.get("/console/console.js", headers={"If-None-Match": '"other"'})
    assert (other.status_code, other.content) == (200, first.content)


@pytest.mark.parametrize(
    "path",
    [
        "/console/nothing",
        "/console/routes.py",
        "/console/..%2Froutes.py",
        "/docs/%2e%2e/page",
        "/console/a/b",
    ],
)
async def test_nothing_else_is_there(http: httpx.AsyncClient, path: str) -> None:
    got = await http.get(path)
    assert got.status_code == 404
    assert got.json()["type"] == "/problems/not-found"


async def test_a_page_is_only_read(http: httpx.AsyncClient) -> None:
    got = await http.post("/console", json={})
    assert got.status_code == 405
    assert (await http.head("/console")).status_code == 200
