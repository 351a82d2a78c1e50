"""Answers for a browser, a cache and a client without rights: policies, `no-store`, metrics that need a right."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from app.main import create_app
from core.config import Config
from core.records.record import NewRecord

from .test_authentication import PASSWORD, Served, ask, basic

POLICY = "default-src 'none'; frame-ancestors 'none'"
RECORD = "/api/v1/topics/t/partitions/0/records/0"


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    made = Served(tmp_path / "data", "basic,token")
    async with made.app.lifespan():
        for name in ("alice", "carol"):
            await made.users.create(name, PASSWORD)
        broker = made.app.server.broker
        await broker.topics.create("t", partitions=1)
        await broker.records.produce("t", [NewRecord(value=b"<script>")], partition=0)
        yield made
        await made.http.aclose()


async def test_each_answer_has_a_policy_and_pages_have_their_own(served: Served) -> None:
    who = {"authorization": basic("alice", PASSWORD)}
    stream = {**who, "accept": "application/x-ndjson"}
    for path, headers in (
        ("/api/v1/topics", who), (RECORD, who), ("/topics", who), ("/api/v1/nothing", who), ("/livez", {}),
        ("/api/v1/topics/t/records?limit=1", stream), ("/api/v1/topics", {}),
    ):  # fmt: skip
        answer = await served.get(path, **headers)
        assert answer.headers.get_list("content-security-policy") == [POLICY], path
        assert answer.headers["x-content-type-options"] == "nosniff", path
    for path in ("/problems", "/docs/", "/console/"):
        policies = (await served.http.get(path, follow_redirects=True)).headers.get_list(
            "content-security-policy"
        )
        assert (
            len(policies) == 1 and "style-src" in policies[0] and "frame-ancestors 'none'" in policies[0]
        ), path


async def test_bytes_of_a_record_are_a_download(served: Served) -> None:
    who = {"authorization": basic("alice", PASSWORD)}
    raw = await served.get(RECORD, accept="application/octet-stream", **who)
    assert raw.content == b"<script>" and raw.headers["content-disposition"] == "attachment"
    assert "content-disposition" not in (await served.get(RECORD, **who)).headers


async def test_what_a_user_gets_is_kept_in_no_cache(served: Served) -> None:
    who = {"authorization": basic("alice", PASSWORD)}
    for path, accept in (
        (RECORD, "application/json"), ("/api/v1/topics", "application/json"),
        ("/api/v1/topics/t/partitions/0/records?offset=0", "application/json"),
        ("/api/v1/topics/t/records?limit=1", "application/x-ndjson"),
        ("/topics/t/partitions", "application/json"),
    ):  # fmt: skip
        answer = await served.get(path, accept=accept, **who)
        assert answer.status_code == 200, answer.text
        assert answer.headers.get_list("cache-control") == ["no-store"], path


async def test_metrics_need_describe_on_the_cluster(served: Served) -> None:
    assert (await served.http.get("/metrics")).status_code == 401
    carol = {"authorization": basic("carol", PASSWORD)}
    assert (await served.get("/metrics", **carol)).status_code == 403
    assert (await served.get("/metrics", authorization=basic("alice", PASSWORD))).status_code == 200
    rule = {"resource_type": "CLUSTER", "principal": "User:carol", "operation": "DESCRIBE"}
    assert (await ask(served, "POST", "/acls", {"acls": [rule]})).status_code == 201
    assert (await served.get("/metrics", **carol)).status_code == 200


async def test_a_setting_opens_metrics_and_nothing_else(tmp_path: Path) -> None:
    base = Served(tmp_path / "unused", "basic,token")
    config = replace(base.app.shared.config, data_dir=tmp_path / "data", open_metrics=True)
    app = create_app(config, base.clock, http_endpoints=base.app.shared.http_endpoints)
    async with app.lifespan():
        await app.server.broker.users.create("alice", PASSWORD)
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url=str(base.http.base_url)) as http:
            assert (await http.get("/metrics")).status_code == 200
            for path in ("/metrics/", "/api/v1/topics", "/openapi.json"):
                assert (await http.get(path)).status_code == (200 if path == "/metrics/" else 401), path


async def test_details_of_health_need_a_right(tmp_path: Path) -> None:
    from app.http.request import Request
    from app.native.operations import Operations
    from core.vocabulary.idempotency import NO_PRINCIPAL

    for config, detail in ((Config(), True), (Config(authorizer=True), False)):
        app = create_app(replace(config, data_dir=tmp_path / str(detail), listeners=()), http_endpoints=[])
        async with app.lifespan():
            parts = Operations(
                app.shared.current_broker, app.shared.acting, lambda: "registered", app.metrics.scrape
            )
            scope = {"headers": [], "sluice.principal": NO_PRINCIPAL}
            request = Request(scope, None, {}, app.shared.config, app.traffic.in_flight)  # type: ignore[arg-type]
            answer = await parts.ready(request, [])
            assert (b"registered" in answer.body) is detail and answer.status == 200
