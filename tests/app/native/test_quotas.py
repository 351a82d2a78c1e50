"""Client quotas over HTTP: the resource, and requests beyond a quota, in the broker's clock."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.main import Application, create_app
from core.clock import ManualClock
from core.config import Config, Endpoint
from core.types import TopicPartition

V1 = "/api/v1"
EVERY_USER = [{"type": "user", "name": None}]


class Served:
    """An application in this process with a clock of its own, and a client of it."""

    def __init__(self, data_dir: Path) -> None:
        self.clock = ManualClock()
        self.app: Application = create_app(
            Config(data_dir=data_dir, listeners=()),
            self.clock,
            http_endpoints=[Endpoint("http", "127.0.0.1", 8082)],
        )
        transport = httpx.ASGITransport(app=self.app)
        self.http = httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8082")

    async def set(self, entity: list[dict[str, Any]], **quotas: Any) -> httpx.Response:
        return await self.http.put(f"{V1}/quotas", json={"entity": entity, "quotas": quotas})

    async def write(self, size: int, **headers: str) -> httpx.Response:
        return await self.http.post(
            f"{V1}/topics/t/records?acks=1",
            content=bytes(size),
            headers={"content-type": "image/png", **headers},
        )

    async def read(self) -> httpx.Response:
        return await self.http.get(f"{V1}/topics/t/partitions/0/records")


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    made = Served(tmp_path / "data")
    async with made.app.lifespan():
        yield made
        await made.http.aclose()


async def test_quotas_are_put_listed_replaced_and_deleted(served: Served) -> None:
    both = [{"type": "client-id", "name": "app"}, {"type": "user", "name": "alice"}]
    made = await served.set(both, producer_byte_rate=1000, request_percentage=12.5)
    assert made.status_code == 200, made.text
    found = made.json()
    assert [part["type"] for part in found["entity"]] == ["user", "client-id"]
    assert (found["quotas"]["producer_byte_rate"], found["quotas"]["request_percentage"]) == (1000, 12.5)
    assert (await served.set([{"type": "ip", "name": None}], connection_creation_rate=50)).status_code == 200
    replaced = await served.set(both, consumer_byte_rate=5)
    assert replaced.json()["quotas"]["producer_byte_rate"] is None
    listed = (await served.http.get(f"{V1}/quotas")).json()["items"]
    assert [one["quotas"]["consumer_byte_rate"] for one in listed] == [None, 5]
    gone = await served.http.delete(f"{V1}/quotas?user=alice&client_id=app")
    assert gone.status_code == 204
    assert (await served.http.delete(f"{V1}/quotas?user=alice&client_id=app")).status_code == 404
    assert (await served.http.delete(f"{V1}/quotas?default_ip=true")).status_code == 204
    assert (await served.http.get(f"{V1}/quotas")).json() == {"items": []}


@pytest.mark.parametrize(
    ("entity", "quotas"),
    [
        ([], {"producer_byte_rate": 1}),
        ([{"type": "group", "name": "a"}], {"producer_byte_rate": 1}),
        ([{"type": "user", "name": ""}], {"producer_byte_rate": 1}),
        ([{"type": "user", "name": "a"}], {}),
        ([{"type": "user", "name": "a"}], {"producer_byte_rate": 0}),
        ([{"type": "user", "name": "a"}], {"producer_byte_rate": 1.5}),
        ([{"type": "user", "name": "a"}], {"connection_creation_rate": 1}),
        ([{"type": "user", "name": "a"}], {"bytes": 1}),
        ([{"type": "user", "name": "a"}, {"type": "user", "name": "b"}], {"producer_byte_rate": 1}),
        ([{"type": "user", "name": "a"}, {"type": "ip", "name": "::1"}], {"producer_byte_rate": 1}),
        ([{"type": "ip", "name": "localhost"}], {"connection_creation_rate": 1}),
        ([{"type": "ip", "name": "::1"}], {"producer_byte_rate": 1}),
    ],
)
async def test_quotas_that_cannot_be_are_refused(
    served: Served, entity: list[dict[str, Any]], quotas: dict[str, Any]
) -> None:
    assert (await served.set(entity, **quotas)).status_code in (400, 422)
    assert (await served.http.get(f"{V1}/quotas")).json() == {"items": []}


@pytest.mark.parametrize("query", ["", "?user=a&default_user=true", "?ip=localhost", "?user=a&ip=::1"])
async def test_a_deletion_names_an_entity(served: Served, query: str) -> None:
    assert (await served.http.delete(f"{V1}/quotas{query}")).status_code in (400, 422)


async def test_a_write_beyond_the_quota_is_refused_before_it_is_written(served: Served) -> None:
    assert (await served.write(5_000)).status_code == 200
    await served.set(EVERY_USER, producer_byte_rate=1000)
    assert (await served.write(9_000)).status_code == 200
    assert (await served.write(5_000)).status_code == 200
    tp = TopicPartition("t", 0)
    end = served.app.server.broker.partitions.info(tp).offsets.high_watermark
    refused = await served.write(1)
    assert refused.status_code == 429
    assert refused.headers["content-type"] == "application/problem+json"
    # 14,000 bytes, of which a window of ten seconds takes 10,000.
    assert refused.headers["retry-after"] == "4"
    problem = refused.json()
    assert (problem["type"], problem["quota"], problem["retriable"]) == (
        "/problems/throttling-quota-exceeded",
        "producer_byte_rate",
        True,
    )
    keyed = await served.write(1, **{"idempotency-key": "k"})
    assert keyed.status_code == 429
    lines = await served.http.post(
        f"{V1}/topics/t/records", content=b'{"value": 1}\n', headers={"content-type": "application/x-ndjson"}
    )
    assert lines.status_code == 429
    proxy = await served.http.post(
        "/topics/t",
        json={"records": [{"value": 1}]},
        headers={"content-type": "application/vnd.kafka.json.v2+json"},
    )
    assert (proxy.status_code, proxy.headers["retry-after"]) == (429, "4")
    assert served.app.server.broker.partitions.info(tp).offsets.high_watermark == end
    served.clock.advance(4)
    assert (await served.write(1)).status_code == 200


async def test_a_read_beyond_the_quota_is_refused(served: Served) -> None:
    for _ in range(20):
        await served.write(1_000)
    await served.set(EVERY_USER, consumer_byte_rate=500)
    read = 0
    while (answer := await served.read()).status_code == 200:
        read += len(answer.json()["records"])
        assert read <= 12
    assert read >= 4
    assert answer.status_code == 429
    assert int(answer.headers["retry-after"]) >= 1
    one = await served.http.get(f"{V1}/topics/t/partitions/0/records/1")
    assert one.status_code == 429
    served.clock.advance(30)
    assert (await served.read()).status_code == 200


async def test_changes_of_topics_beyond_the_quota_are_refused(served: Served) -> None:
    await served.set(EVERY_USER, controller_mutation_rate=1)
    assert (await served.http.put(f"{V1}/topics/a", json={"partitions": 13})).status_code == 201
    # To confirm a topic changes nothing, and what fails costs nothing.
    assert (await served.http.put(f"{V1}/topics/a", json={"partitions": 13})).status_code == 200
    for _ in range(3):
        refused = await served.http.put(f"{V1}/topics/b")
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "2")
    assert (await served.http.patch(f"{V1}/topics/a", json={"partitions": 14})).status_code == 429
    assert (await served.http.delete(f"{V1}/topics/a")).status_code == 429
    served.clock.advance(2)
    assert (await served.http.delete(f"{V1}/topics/a")).status_code == 204
