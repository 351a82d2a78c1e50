"""Client quotas over HTTP: the resource, and requests beyond a quota, in the broker's clock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.http.principal import Resolver
from app.http.request import Request
from app.main import Application, create_app
from core.clock import ManualClock
from core.config import Config, Endpoint
from core.types import TopicPartition
from tests.app.native.streams.asgi_stream import Stream, streaming

V1 = "/api/v1"
EVERY_USER = [{"type": "user", "name": None}]


class Served:
    """An application in this process with a clock of its own, and a client of it."""

    def __init__(
        self, data_dir: Path, clock: ManualClock | None = None, resolver: Resolver | None = None
    ) -> None:
        self.clock = clock or ManualClock()
        self.app: Application = create_app(
            # A stream that waits looks again in this many real milliseconds; the clock stands still meanwhile.
            Config(data_dir=data_dir, listeners=(), stream_comment_ms=20),
            self.clock,
            resolver,
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


async def delayed(served: Served, stream: Stream, streams: int) -> list[int]:
    """Wait until `streams` streams wait for their quota. Return the offsets that came on one of them until then."""
    async with asyncio.timeout(20):
        while len(served.app.server.broker.purgatory) < streams:
            await asyncio.sleep(0.001)
    found = b""
    while not stream.pieces.empty():
        found += stream.pieces.get_nowait() or b""
    return [event.json()["offset"] for event in stream.parser.feed(found) if event.type == "record"]


async def test_a_stream_beyond_the_quota_is_delayed_and_misses_nothing(served: Served) -> None:
    for _ in range(20):
        await served.write(1_000)
    await served.set(EVERY_USER, consumer_byte_rate=500)
    async with streaming(served.app, f"{V1}/topics/t/records") as stream:
        # A window of ten seconds takes five records.
        first = await delayed(served, stream, 1)
        assert first in (list(range(5)), list(range(6)))
        # An append does not end the delay; the client's other reads are refused, its other streams are delayed.
        await served.write(1_000)
        assert (await served.http.get(f"{V1}/topics/t/records")).status_code == 429
        async with streaming(served.app, f"{V1}/topics/t/records") as other:
            assert other.status == 200
            assert await delayed(served, other, 2) == []
        served.clock.advance(0.03)
        while not stream.parser.comments:
            stream.parser.feed(await stream.piece() or b"")
        served.clock.advance(60)
        more = [record["offset"] for record in await stream.records(5)]
        assert more == list(range(len(first), len(first) + 5))


async def test_a_merged_read_counts_and_is_refused_beyond_the_quota(served: Served) -> None:
    for _ in range(20):
        await served.write(1_000)
    await served.set(EVERY_USER, consumer_byte_rate=500)
    url, read = f"{V1}/topics/t/records", 0
    while (answer := await served.http.get(url)).status_code == 200:
        read += len(answer.json()["records"])
        assert read <= 12
    assert read >= 4
    assert (answer.status_code, answer.json()["quota"]) == (429, "consumer_byte_rate")
    wait = int(answer.headers["retry-after"])
    assert wait >= 1
    served.clock.advance(wait)
    assert (await served.http.get(url)).status_code == 200


class TickingClock(ManualClock):
    """Time that moves a hundredth of a second with each look at it."""

    def monotonic(self) -> float:
        """See `Clock.monotonic`."""
        self.advance(0.01)
        return super().monotonic()


async def user_of(request: Request, ticket: str | None) -> str:
    return request.headers.get(b"x-user", b"User:ANONYMOUS").decode()


async def test_a_user_beyond_its_share_of_time_is_refused_for_a_second(tmp_path: Path) -> None:
    served = Served(tmp_path / "data", TickingClock(), user_of)
    async with served.app.lifespan(), served.http as http:

        async def get(user: str, path: str = f"{V1}/topics") -> httpx.Response:
            return await http.get(path, headers={"x-user": f"User:{user}"})

        for _ in range(30):
            assert (await get("alice")).status_code == 200
        await served.set([{"type": "user", "name": "alice"}], request_percentage=1)
        # A percent of the window of ten seconds is ten looks at the clock.
        assert (await get("alice")).status_code == 200
        served_first = 1
        while (answer := await get("alice")).status_code == 200:
            served_first += 1
            assert served_first <= 10
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
        assert answer.json()["quota"] == "request_percentage"
        assert (await get("alice", "/livez")).status_code == 200
        assert (await get("bob")).status_code == 200
        # Refusals do not make the wait longer, though their time counts.
        for _ in range(3):
            assert (await get("alice", f"{V1}/topics/none")).status_code == 429
        served.clock.advance(1)
        assert (await get("alice")).status_code == 200
        assert (await get("alice")).status_code == 429
        streamed = await get("alice", f"{V1}/topics/none/records")
        assert streamed.status_code == 429
        await served.set([{"type": "user", "name": "alice"}], producer_byte_rate=1)
        assert (await get("alice")).status_code == 200
