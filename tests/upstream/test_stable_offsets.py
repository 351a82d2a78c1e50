"""The last stable offset that a gateway shows is one that the cluster has told, never one that it has inferred."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from core.types import TopicPartition
from tests.core.transactional_log import TransactionalLog
from tests.upstream.cluster import Cluster
from tests.upstream.gateway import Gateway
from tests.upstream.running import now, with_gateway

TOPIC = "orders"
T = f"/api/v1/topics/{TOPIC}"


async def page(gateway: Gateway, **params: Any) -> dict[str, Any]:
    answer = await gateway.http.get(f"{T}/partitions/0/records", params=params)
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


async def post(gateway: Gateway, value: str) -> None:
    answer = await gateway.http.post(f"{T}/records", json={"records": [{"value": value, "partition": 0}]})
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("uncommitted_first", [False, True])
def test_a_committed_read_at_the_end_does_not_wait_for_an_open_transaction(
    tmp_path: Path, uncommitted_first: bool
) -> None:
    async def scenario(cluster: Cluster, gateway: Gateway) -> None:
        await cluster.broker.topics.create(TOPIC, partitions=1)
        log = TransactionalLog(cluster.broker, TopicPartition(TOPIC, 0))
        await post(gateway, "first")
        assert (await page(gateway, offset=0))["last_stable_offset"] == 1
        log.write(1, "open")
        # Its acknowledgement raises the high watermark, and says nothing of transactions.
        await post(gateway, "after the open one")
        if uncommitted_first:
            body = await page(gateway, offset=1, isolation_level="read_uncommitted")
            assert len(body["records"]) == 2
        began = now()
        for _ in range(3):
            body = await page(gateway, offset=1)
            assert (body["records"], body["last_stable_offset"]) == ([], 1)
            assert body["high_watermark"] == 3
        assert now() - began < 0.1
        log.end(1, commit=True)
        body = await page(gateway, offset=1, wait_ms=20_000)
        assert [one["value"] for one in body["records"]] == ["open", "after the open one"]

    with_gateway(tmp_path, scenario)


def test_the_end_of_an_uncommitted_read_is_not_that_of_a_committed_one(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, gateway: Gateway) -> None:
        await cluster.broker.topics.create(TOPIC, partitions=1)
        log = TransactionalLog(cluster.broker, TopicPartition(TOPIC, 0))
        await post(gateway, "first")
        await page(gateway, offset=1, isolation_level="read_uncommitted")
        for number in range(3):
            log.write(1, f"open-{number}")
            await page(gateway, offset=1 + number, isolation_level="read_uncommitted")
        began = now()
        body = await page(gateway, offset=1)
        assert (body["records"], body["last_stable_offset"]) == ([], 1)
        assert now() - began < 0.1
        log.end(1, commit=False)

    with_gateway(tmp_path, scenario)


def test_a_read_has_what_was_acknowledged_before_it_also_beyond_batches_at_hand(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, gateway: Gateway) -> None:
        await cluster.broker.topics.create(TOPIC, partitions=1)
        for number in range(5):
            await post(gateway, f"v{number}")
            body = await page(gateway, offset=0)
            assert [one["value"] for one in body["records"]] == [f"v{n}" for n in range(number + 1)]
            assert body["last_stable_offset"] == number + 1

    with_gateway(tmp_path, scenario)
