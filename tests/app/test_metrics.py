"""/metrics: what Prometheus reads, that it moves, and that no client can make it grow."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator

import httpx
import pytest
import pytest_asyncio
from aiokafka import AIOKafkaProducer
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse

from app.main import Application
from core.types import TopicPartition
from core.vocabulary.groups import Target
from tests.broker_process import ROOT
from tests.core.transactions.test_transactions import Client

pytestmark = pytest.mark.asyncio(loop_scope="module")

CONFIG = {"metrics_max_topics": 30, "metrics_max_group_topics": 10, "default_partitions": 2}
JSON = {"content-type": "application/json"}
Labels = frozenset[tuple[str, str]]


async def read(http: httpx.AsyncClient) -> dict[tuple[str, Labels], float]:
    """Every sample of one scrape."""
    got = await http.get("/metrics")
    assert got.status_code == 200
    samples = {}
    for family in parse(got.text):
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in samples, f"{key} is a duplicate"
            samples[key] = sample.value
    return samples


def value(samples: dict[tuple[str, Labels], float], name: str, **labels: str) -> float:
    return samples.get((name, frozenset(labels.items())), 0.0)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def producer(app: Application) -> AsyncIterator[AIOKafkaProducer]:
    (endpoint,) = app.server.endpoints
    made = AIOKafkaProducer(bootstrap_servers=f"{endpoint.host}:{endpoint.port}", acks=1)
    await made.start()
    yield made
    await made.stop()


async def test_prometheus_own_parsers_read_it_in_both_forms(http: httpx.AsyncClient) -> None:
    got = await http.get("/metrics")
    assert got.headers["content-type"].startswith("text/plain; version=")
    types = {family.name: family.type for family in parse(got.text)}
    assert types["sluice_http_requests"] == types["sluice_kafka_requests"] == "counter"
    assert types["sluice_http_request_duration_seconds"] == "histogram"
    assert types["sluice_waiting_polls"] == types["sluice_topic_log_bytes"] == "gauge"
    assert {"process_resident_memory_bytes", "sluice_build_info", "sluice_event_loop_delay_seconds"} <= {
        *types
    }
    assert all(family.documentation for family in parse(got.text))
    got = await http.get("/metrics", headers={"accept": "application/openmetrics-text; version=1.0.0"})
    assert got.headers["content-type"].startswith("application/openmetrics-text")
    assert {family.name for family in parse_openmetrics(got.text)} == set(types)


async def test_a_request_over_http_moves_its_counters(http: httpx.AsyncClient, topic: str) -> None:
    route = "/api/v1/topics/{topic}/records"
    before = await read(http)
    body = b'{"value": "Hello"}'
    for _ in range(3):
        got = await http.post(f"/api/v1/topics/{topic}/records", content=body, headers=JSON)
        assert got.status_code == 200
    await http.post(f"/api/v1/topics/{topic}/records", content=b"{", headers=JSON)
    after = await read(http)

    def rise(name: str, **labels: str) -> float:
        return value(after, name, **labels) - value(before, name, **labels)

    assert rise("sluice_http_requests_total", method="POST", route=route, status="200") == 3
    assert rise("sluice_http_requests_total", method="POST", route=route, status="400") == 1
    assert rise("sluice_http_request_duration_seconds_count", method="POST", route=route) == 4
    assert rise("sluice_http_request_duration_seconds_bucket", method="POST", route=route, le="+Inf") == 4
    assert rise("sluice_http_received_bytes_total", method="POST", route=route) == 3 * len(body) + 1
    assert rise("sluice_http_sent_bytes_total", method="POST", route=route) > 100
    assert value(after, "sluice_topic_end_offsets", topic=topic) == 3
    assert value(after, "sluice_topic_log_bytes", topic=topic) > 100
    assert rise("sluice_fsync_duration_seconds_count") >= 1
    assert rise("sluice_sqlite_commit_duration_seconds_count") >= 1  # the topic


async def test_refusals_are_counted_by_the_type_of_their_problem(
    http: httpx.AsyncClient, app: Application
) -> None:
    calls = {
        "unknown-topic-or-partition": ("GET", "/api/v1/topics/nothing/partitions/0/records", {}),
        "invalid-request": ("PUT", "/api/v1/topics/t", {"json": {"partitions": "many"}}),
        "malformed-request": ("POST", "/api/v1/topics/t/records", {"content": b"{", "headers": JSON}),
        "not-found": ("GET", "/nothing/here", {}),
        "foreign-origin": ("POST", "/topics/t", {"json": {}, "headers": {"origin": "http://evil.example"}}),
        "unsupported-media-type": (
            "POST",
            "/topics/refusals",
            {"content": b"x", "headers": {"content-type": "text/x"}},
        ),
        "v2-40403": ("GET", "/topics/nothing", {}),
    }
    assert (await http.put("/api/v1/topics/refusals")).status_code == 201
    before = await read(http)
    for method, path, more in calls.values():
        assert (await http.request(method, path, **more)).status_code >= 400
    after = await read(http)
    moved = {}
    for (name, labels), count in after.items():
        if name == "sluice_http_refusals_total" and count != before.get((name, labels), 0):
            moved[dict(labels)["problem"]] = count - before.get((name, labels), 0)
    assert moved == dict.fromkeys(calls, 1)


async def test_a_request_over_the_kafka_listener_moves_its_counters(
    http: httpx.AsyncClient, producer: AIOKafkaProducer, topic: str
) -> None:
    before = await read(http)
    await producer.send_and_wait(topic, b"x" * 1000)
    after = await read(http)

    def rise(name: str) -> float:
        return value(after, name, api="Produce") - value(before, name, api="Produce")

    assert rise("sluice_kafka_requests_total") == 1
    assert rise("sluice_kafka_request_duration_seconds_count") == 1
    assert 1000 < rise("sluice_kafka_received_bytes_total") < 1300
    assert 20 < rise("sluice_kafka_sent_bytes_total") < 200
    assert value(after, "sluice_tcp_connections", door="kafka") >= 1
    assert value(after, "sluice_tcp_accepted_connections_total", door="kafka") >= 1
    # The producer asked for a topic that was not there yet.
    name = "sluice_kafka_errors_total"
    assert any(n == name and ("api", "Metadata") in labels and v for (n, labels), v in after.items())


async def test_the_lag_of_a_group_is_shown_by_topic(
    http: httpx.AsyncClient, app: Application, topic: str
) -> None:
    await http.post(f"/api/v1/topics/{topic}/records", json={"records": [{"value": n} for n in range(10)]})
    await app.server.broker.groups.positions.reset("billing", Target(earliest=True), [topic])
    assert value(await read(http), "sluice_group_lag", group="billing", topic=topic) == 10


async def test_transactions_move_their_numbers(app: Application, http: httpx.AsyncClient, topic: str) -> None:
    await http.put(f"/api/v1/topics/{topic}", json={"partitions": 1})
    before = await read(http)
    client = Client(app.server.broker, topic)
    await client.init()
    await client.write(TopicPartition(topic, 0), "1", "2")
    after = await read(http)
    held = {"topic": topic, "partition": "0"}
    assert value(after, "sluice_unstable_offsets", **held) == 2
    for name in ("sluice_open_transactions", "sluice_transactional_ids"):
        assert value(after, name) == value(before, name) + 1
    await client.end(commit=True)
    after = await read(http)
    for outcome, ended in (
        ("committed", 1),
        ("aborted", 0),
        ("timed_out", 0),
        ("fenced", 0),
        ("terminated", 0),
    ):
        key = ("sluice_ended_transactions_total", frozenset({"outcome": outcome}.items()))
        assert after[key] == before[key] + ended
    assert value(after, "sluice_open_transactions") == value(before, "sluice_open_transactions")
    assert ("sluice_unstable_offsets", frozenset(held.items())) not in after
    for name in ("oldest_transaction_seconds", "late_transactions", "pending_offsets"):
        assert after[f"sluice_{name}", frozenset()] == 0
    assert ("sluice_hanging_transactions_aborted_total", frozenset()) in after


async def test_a_waiting_poll_is_counted_while_it_waits(http: httpx.AsyncClient, topic: str) -> None:
    await http.post(f"/api/v1/topics/{topic}/records", json={"value": 1, "partition": 0})
    path = f"/api/v1/topics/{topic}/partitions/0/records?offset=1&wait_ms=20000"
    poll = asyncio.create_task(http.get(path))
    async with asyncio.timeout(10):
        while not value(await read(http), "sluice_waiting_polls"):
            await asyncio.sleep(0.01)
    assert value(await read(http), "sluice_http_requests_in_progress") == 2
    await http.post(f"/api/v1/topics/{topic}/records", json={"value": 2, "partition": 0})
    await poll
    assert value(await read(http), "sluice_waiting_polls") == 0


async def test_hostile_paths_methods_and_clients_make_no_series(
    http: httpx.AsyncClient, producer: AIOKafkaProducer
) -> None:
    await http.get("/nowhere/0")
    await http.request("SLUICE0", "/nowhere/0")
    await http.get("/topics/none0")
    await http.get("/api/v1/topics/none0/records")
    await http.get("/problems/none0")
    before = await read(http)
    for n in range(1, 30):
        await http.get(f"/nowhere/{n}", headers={"user-agent": f"evil-{n}", "x-request-id": f"id-{n}"})
        await http.request(f"SLUICE{n}", "/nowhere/0")
        await http.get(f"/topics/none{n}")
        await http.get(f"/api/v1/topics/none{n}/records")
        await http.get(f"/problems/none{n}")
    after = await read(http)
    new = {key for key in after.keys() - before.keys() if key[0].startswith("sluice_")}
    assert {name for name, _ in new} <= {"sluice_topic_partitions"}, new
    assert not any("evil" in str(key) or "none1" in str(key) for key in after)


async def test_only_some_topics_and_groups_are_shown_and_the_rest_is_counted(
    http: httpx.AsyncClient, app: Application
) -> None:
    broker = app.server.broker
    for n in range(40):
        await broker.topics.create(f"many-{n}")
    for n in range(15):
        await broker.groups.positions.reset(f"group-{n}", Target(earliest=True), ["many-0"])
    await broker.groups.positions.reset("long" * 100, Target(earliest=True), ["many-0"])
    samples = await read(http)
    assert sum(name == "sluice_topic_log_bytes" for name, _ in samples) == 30
    assert value(samples, "sluice_metrics_left_out", what="topics") == len(broker.topics.list()) - 30
    assert value(samples, "sluice_topics") == len(broker.topics.list())
    assert sum(name == "sluice_group_lag" for name, _ in samples) == 10
    assert value(samples, "sluice_metrics_left_out", what="group_topics") >= 6
    assert "longlong" not in str(samples.keys())


async def test_scrapes_at_the_same_time_all_get_the_same_names(http: httpx.AsyncClient) -> None:
    scrapes = await asyncio.gather(*(read(http) for _ in range(8)))
    assert len({frozenset(name for name, _ in one) for one in scrapes}) == 1


async def test_the_library_is_imported_by_the_first_scrape_and_not_before() -> None:
    code = "import sys, app.http.server; print('prometheus_client' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
