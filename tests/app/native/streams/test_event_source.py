"""A real EventSource (Node's, which follows the HTML standard) that the broker stops, dies and moves on under."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.broker_process import BrokerProcess
from tests.conftest import node_program

SCRIPT = Path(__file__).with_name("event_source.mjs")
T = "/api/v1/topics/t"
CLOSED = 2


class Source:
    """The lines of the other process, as they come."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.seen: list[dict[str, Any]] = []

    async def until(self, type_: str, count: int = 1) -> list[dict[str, Any]]:
        """Read on until there were `count` of one type; all of that type so far."""
        assert self._process.stdout is not None
        async with asyncio.timeout(30):
            while len(found := [e for e in self.seen if e["type"] == type_]) < count:
                line = await self._process.stdout.readline()
                assert line, "the page has ended"
                self.seen.append(json.loads(line))
        return found


@asynccontextmanager
async def event_source(url: str) -> AsyncIterator[Source]:
    """An EventSource in a Node process."""
    node = node_program()
    assert node is not None
    process = await asyncio.create_subprocess_exec(
        node, "--experimental-eventsource", "--no-warnings", str(SCRIPT), url,
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        yield Source(process)
    finally:
        process.kill()
        await process.wait()


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[BrokerProcess]:
    process = BrokerProcess(tmp_path / "data")
    try:
        yield await asyncio.to_thread(process.start)
    finally:
        process.kill()
    assert "Traceback" not in process.read_log()


async def produce(broker: BrokerProcess, count: int) -> None:
    async with httpx.AsyncClient(base_url=broker.http) as http:
        records = [{"key": str(number), "value": number} for number in range(count)]
        assert (await http.post(f"{T}/records", json={"records": records})).status_code == 200


@pytest.mark.client("node")
async def test_an_event_source_misses_nothing_and_gets_nothing_twice(broker: BrokerProcess) -> None:
    async with httpx.AsyncClient(base_url=broker.http) as http:
        await http.put(T, json={"partitions": 3})
    await produce(broker, 20)
    async with event_source(f"{broker.http}{T}/records?from=earliest") as page:
        await page.until("caught_up")
        await produce(broker, 20)
        await page.until("record", 40)
        # A stop in order: the page is told, and comes back by itself.
        await asyncio.to_thread(broker.stop)
        await page.until("bye")
        await asyncio.to_thread(broker.start)
        await produce(broker, 20)
        await page.until("record", 60)
        # A death: no goodbye.
        broker.kill()
        await asyncio.to_thread(broker.start)
        await produce(broker, 20)
        records = await page.until("record", 80)
        await produce(broker, 1)
        records = await page.until("record", 81)
    got = [(r["data"]["partition"], r["data"]["offset"]) for r in records]
    assert len(set(got)) == 81
    for partition in range(3):
        mine = [offset for number, offset in got if number == partition]
        assert mine == list(range(len(mine)))


@pytest.mark.client("node")
async def test_an_event_source_whose_topic_is_deleted_is_told_and_stops(broker: BrokerProcess) -> None:
    async with httpx.AsyncClient(base_url=broker.http) as http:
        await produce(broker, 1)
        async with event_source(f"{broker.http}{T}/records") as page:
            await page.until("caught_up")
            await http.delete(T)
            (problem,) = await page.until("problem")
            assert problem["data"]["kafka_error"] == "UNKNOWN_TOPIC_OR_PARTITION"
            # The reconnect is answered 404, and the standard says not to try again.
            errors = await page.until("error")
            while errors[-1]["state"] != CLOSED:
                errors = await page.until("error", len(errors) + 1)
