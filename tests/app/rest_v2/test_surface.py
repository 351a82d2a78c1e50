"""The v2 surface as a whole: what is its own, and that it leaves the rest alone."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.main import Application
from app.rest_v2.surface import ProxySurface
from tests.app.rest_v2.conftest import BINARY, JSON, TEXT, V2, Refused

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_four_roots_belong_to_it(app: Application) -> None:
    surface = ProxySurface(app.shared)
    for path in ("/", "/brokers", "/topics", "/topics/a", "/consumers/g/instances/i", "/topics/a/b/c/d/e/f"):
        assert surface.owns(path)
    for path in ("/api/v1/topics", "/topicsx", "/problems", "/readyz", "/console", "/v3/clusters"):
        assert not surface.owns(path)


async def test_the_native_surface_keeps_its_own_refusals(http: httpx.AsyncClient) -> None:
    native = await http.get("/api/v1/topics/nothing")
    assert native.json()["type"] == "/problems/unknown-topic-or-partition"
    assert (await http.get("/nothing")).headers["content-type"] == "application/problem+json"


async def test_a_refusal_has_the_media_type_that_is_accepted(
    http: httpx.AsyncClient, refused: Refused
) -> None:
    for accept, answered in [(V2, V2), ("*/*", "application/json"), ("text/html", "application/json")]:
        answer = await http.get("/consumers/g/instances/i/subscription", headers={"accept": accept})
        refused(answer, 404, 40403)
        assert answer.headers["content-type"] == answered


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"])
async def test_methods_that_no_route_has_are_405(
    http: httpx.AsyncClient, refused: Refused, method: str
) -> None:
    answer = await http.request(method, "/topics/t/partitions/0")
    refused(answer, 405, 405)
    assert answer.headers["allow"] == "GET, POST"


NAMES = st.sampled_from(
    [
        "topic", "partition", "offset", "timestamp", "metadata", "name", "id", "format", "key", "value", "headers",
        "auto.offset.reset", "auto.commit.enable", "fetch.min.bytes", "consumer.request.timeout.ms", "records",
        "partitions", "offsets", "timestamps", "topics", "topic_pattern", "key_schema", "value_schema_id",
    ]
)  # fmt: skip
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5)
    | st.sampled_from(["fuzz", "earliest", "json", "YQ==", "(", "..", "0", "1"]) | st.integers(0, 3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)  # fmt: skip
PATHS = [
    "/topics/fuzz", "/topics/fuzz/partitions/0", "/consumers/fuzz", "/consumers/fuzz/instances/i/subscription",
    "/consumers/fuzz/instances/i/assignments", "/consumers/fuzz/instances/i/offsets",
    "/consumers/fuzz/instances/i/positions", "/consumers/fuzz/instances/i/positions/beginning",
    "/consumers/fuzz/instances/i/positions/end",
]  # fmt: skip


async def test_whatever_a_body_holds_it_is_taken_or_refused(http: httpx.AsyncClient) -> None:
    await http.post("/consumers/fuzz", json={"name": "i"})
    sent: list[tuple[str, str, Any]] = []

    @settings(max_examples=150, deadline=None, database=None)
    @given(
        st.lists(
            st.tuples(
                st.sampled_from(PATHS),
                st.sampled_from([V2, JSON, BINARY, TEXT, "application/json"]),
                st.dictionaries(NAMES, VALUES, max_size=3) | VALUES,
            ),
            max_size=8,
        )
    )
    def draw(bodies: list[tuple[str, str, Any]]) -> None:
        sent.extend(bodies)

    await asyncio.to_thread(draw)
    for path, media_type, body in sent:
        answer = await http.post(path, json=body, headers={"content-type": media_type})
        assert answer.status_code < 500, (path, media_type, body, answer.text)
        if answer.status_code >= 400:
            assert set(answer.json()) == {"error_code", "message"}


@pytest.mark.parametrize("group", ["%2E", "%2E%2E"])
async def test_a_group_that_no_path_can_hold_is_refused(
    http: httpx.AsyncClient, refused: Refused, group: str
) -> None:
    refused(await http.post(f"/consumers/{group}", json={}), 422, 40002)
