"""app.http.cors: origin × method × route × what a browser is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from app.http.cors import MAX_RECORD_HEADERS, Cors
from app.main import Application, create_app
from core.config import Config
from tests.app.conftest import HOST, client_of, config_for
from tests.app.native.streams.asgi_stream import streaming

pytestmark = pytest.mark.asyncio(loop_scope="module")
GOOD = "https://app.example.org"
CONFIG = {"http_allowed_origins": (GOOD, "http://localhost:3000")}
T = "/api/v1/topics"
OWN = f"http://{HOST}"
FOREIGN = ["https://evil.example.org", "http://app.example.org", "https://app.example.org:444", "null",
           f"{GOOD}.evil.example", "https://xapp.example.org", ""]  # fmt: skip
ROUTES = [
    ("GET", T, 200), ("GET", f"{T}/cors", 200), ("GET", f"{T}/cors/records", 200),
    ("GET", f"{T}/cors/partitions/0/records", 200), ("HEAD", f"{T}/cors", 200), ("GET", "/topics", 200),
    ("GET", "/healthz", 200), ("GET", f"{T}/nothing", 404), ("GET", f"{T}/cors/partitions/0/records?offset=99", 416),
    ("GET", "/nowhere", 404), ("PUT", f"{T}/cors", 200), ("POST", f"{T}/cors/records", 200),
    ("PATCH", f"{T}/cors", 415), ("DELETE", f"{T}/nothing", 404), ("POST", "/topics/cors", 415),
    ("POST", "/api/v1/groups/g/consumers", 415), ("BREW", T, 405),
]  # fmt: skip


def cors_lines(response: httpx.Response) -> dict[str, str]:
    return {name: value for name, value in response.headers.items() if name.startswith("access-control-")}


@pytest_asyncio.fixture(scope="module", loop_scope="module", autouse=True)
async def _topic(http: httpx.AsyncClient) -> None:
    await http.put(f"{T}/cors", json={"partitions": 1})


async def ask(http: httpx.AsyncClient, method: str, path: str, origin: str) -> httpx.Response:
    kinds = {"PUT": ("application/json", b"{}"), "POST": ("text/plain", b"x"), "PATCH": ("text/plain", b"x")}
    kind, body = kinds.get(method, (None, None))
    headers = {"origin": origin} | ({} if kind is None else {"content-type": kind})
    return await http.request(method, path, headers=headers, content=body)


@pytest.mark.parametrize("origin", [GOOD, "http://localhost:3000"])
@pytest.mark.parametrize(("method", "path", "status"), ROUTES)
async def test_an_allowed_page_is_named_in_every_answer(
    http: httpx.AsyncClient, origin: str, method: str, path: str, status: int
) -> None:
    got = await ask(http, method, path, origin)
    assert got.status_code == status, got.text
    assert got.headers.get_list("access-control-allow-origin") == [origin]
    assert "origin" in got.headers["vary"].replace(",", " ").split()
    exposed = {name.strip().lower() for name in got.headers["access-control-expose-headers"].split(",")}
    assert {"x-request-id", "etag", "location", "retry-after", "idempotent-replayed", "link"} <= exposed
    assert set(cors_lines(got)) == {"access-control-allow-origin", "access-control-expose-headers"}


@pytest.mark.parametrize("origin", FOREIGN)
@pytest.mark.parametrize(("method", "path", "status"), ROUTES)
async def test_a_foreign_page_is_told_nothing_and_writes_nothing(
    http: httpx.AsyncClient, origin: str, method: str, path: str, status: int
) -> None:
    got = await ask(http, method, path, origin)
    assert got.status_code == (status if method in ("GET", "HEAD") else 403)
    assert not cors_lines(got)
    # A cache must not hand this answer to the allowed page.
    assert "origin" in got.headers["vary"].replace(",", " ").split()


async def test_a_page_of_our_own_needs_no_lines(http: httpx.AsyncClient) -> None:
    for method, path, status in ROUTES:
        got = await ask(http, method, path, OWN)
        assert got.status_code == status
        assert not cors_lines(got)


async def preflight(http: httpx.AsyncClient, origin: str, path: str, **asks: str) -> httpx.Response:
    headers = {"origin": origin, "access-control-request-method": "POST"}
    headers |= {f"access-control-request-{name.replace('_', '-')}": value for name, value in asks.items()}
    return await http.options(path, headers=headers)


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"])
@pytest.mark.parametrize("path", sorted({path for _, path, _ in ROUTES}))
async def test_a_preflight_of_an_allowed_page_is_granted_everywhere(
    http: httpx.AsyncClient, method: str, path: str
) -> None:
    wanted = "content-type,if-match,last-event-id,idempotency-key,x-kafka-header-trace,x-kafka-header-a.b"
    got = await preflight(http, GOOD, path, method=method, headers=wanted)
    assert (got.status_code, got.content) == (204, b"")
    assert got.headers.get_list("access-control-allow-origin") == [GOOD]
    assert method in got.headers["access-control-allow-methods"].split(", ")
    assert set(wanted.split(",")) <= set(got.headers["access-control-allow-headers"].split(", "))
    assert int(got.headers["access-control-max-age"]) > 0
    assert "access-control-request-headers" in got.headers["vary"]
    assert "access-control-allow-private-network" not in got.headers
    assert "access-control-allow-credentials" not in got.headers
    assert "*" not in "".join(cors_lines(got).values())


@pytest.mark.parametrize("origin", FOREIGN)
async def test_a_preflight_of_a_foreign_page_is_refused(
    http: httpx.AsyncClient, origin: str, problem: Any
) -> None:
    got = await preflight(http, origin, T, private_network="true", headers="content-type")
    assert got.status_code == 403 and got.json()["type"] == "/problems/foreign-origin"
    assert not cors_lines(got)


async def test_only_clean_names_of_record_headers_are_granted(http: httpx.AsyncClient) -> None:
    asked = (
        "X-Kafka-Header-Good, x-kafka-header-, x-kafka-header-a b, x-kafka-header-<b>, authorization, cookie, x-evil,"
        "x-kafka-header-" + "y" * 300
    )
    got = await preflight(http, GOOD, T, headers=asked)
    granted = got.headers["access-control-allow-headers"].split(", ")
    assert [name for name in granted if name.startswith("x-kafka")] == ["x-kafka-header-good"]
    assert "authorization" in granted and not {"cookie", "x-evil"} & set(granted)
    many = ",".join(f"x-kafka-header-{n}" for n in range(500))
    granted = (
        (await preflight(http, GOOD, T, headers=many)).headers["access-control-allow-headers"].split(", ")
    )
    assert sum(name.startswith("x-kafka") for name in granted) == MAX_RECORD_HEADERS


async def test_a_private_network_is_opened_to_allowed_pages(http: httpx.AsyncClient) -> None:
    got = await preflight(http, GOOD, T, private_network="true")
    assert got.headers["access-control-allow-private-network"] == "true"


async def test_an_options_request_that_is_no_preflight_is_as_before(http: httpx.AsyncClient) -> None:
    got = await http.options(T, headers={"origin": GOOD})
    assert got.status_code == 405 and got.headers["access-control-allow-origin"] == GOOD


async def test_header_lines_of_a_record_can_be_read_by_a_script(http: httpx.AsyncClient) -> None:
    await http.post(f"{T}/cors/records", content=b"raw", headers={"x-kafka-header-trace": "7f"})
    page = (await http.get(f"{T}/cors/partitions/0/records")).json()
    got = await http.get(
        f"{T}/cors/partitions/0/records/{page['next_offset'] - 1}",
        headers={"origin": GOOD, "accept": "application/octet-stream"},
    )
    exposed = got.headers["access-control-expose-headers"].split(", ")
    assert {"x-kafka-offset", "x-kafka-header-trace"} <= set(exposed)


@pytest.mark.parametrize("accept", ["text/event-stream", "application/x-ndjson"])
@pytest.mark.parametrize(("origin", "allowed"), [(GOOD, True), (FOREIGN[0], False)])
async def test_a_stream_begins_with_the_lines(
    app: Application, accept: str, origin: str, allowed: bool
) -> None:
    async with streaming(app, f"{T}/cors/records", accept=accept, origin=origin) as stream:
        assert stream.status == 200 and accept in stream.headers["content-type"]
        assert stream.headers.get("access-control-allow-origin") == (origin if allowed else None)


async def test_without_a_list_no_client_gets_a_line(tmp_path: Path) -> None:
    app = create_app(config_for(tmp_path / "data"))
    async with app.lifespan(), client_of(app) as http:
        await http.put(f"{T}/cors", json={"partitions": 1})
        for method, path, status in ROUTES:
            got = await ask(http, method, path, GOOD)
            assert got.status_code == (status if method in ("GET", "HEAD") else 403)
            assert not cors_lines(got)
        assert (await preflight(http, GOOD, T)).status_code == 403
        assert "vary" not in (await http.get(T)).headers


async def test_the_same_host_on_another_port_is_another_origin() -> None:
    cors = Cors(Config(http_allowed_origins=("http://localhost:3000",)))
    assert cors.allows(b"http://localhost:3000") and cors.allows(b"HTTP://LOCALHOST:3000")
    assert not cors.allows(b"http://localhost:3001") and not cors.allows(b"http://localhost:3000/")


async def test_the_contract_of_a_refusal_stays_a_problem_document(http: httpx.AsyncClient) -> None:
    got = await http.get(f"{T}/nothing", headers={"origin": GOOD})
    assert json.loads(got.content)["status"] == 404
    assert got.headers["content-type"] == "application/problem+json"
