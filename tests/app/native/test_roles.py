"""Roles over HTTP: one broker that stops leading and leads again, and what it may not do."""

from __future__ import annotations

import httpx
import pytest

pytestmark = pytest.mark.asyncio(loop_scope="module")
V1 = "/api/v1"


async def test_a_partition_stops_being_led_and_is_led_again(http: httpx.AsyncClient, topic: str) -> None:
    await http.put(f"{V1}/topics/{topic}")
    shown = (await http.get(f"{V1}/topics/{topic}/partitions/0/role")).json()
    assert (shown["role"], shown["leader"], shown["replicas"], shown["in_sync"]) == ("leader", 1, [1], [1])
    answer = await http.post(f"{V1}/topics/{topic}/partitions/0:role", json={"role": "follower"})
    assert (answer.status_code, answer.json()["role"], answer.json()["leader"]) == (200, "follower", None)
    refused = await http.post(f"{V1}/topics/{topic}/records", json={"records": [{"value": "x"}]})
    assert (refused.status_code, refused.json()["kafka_error"]) == (503, "NOT_LEADER_OR_FOLLOWER"), (
        refused.text
    )
    again = (await http.post(f"{V1}/topics/{topic}/partitions/0:role", json={"role": "leader"})).json()
    assert again["role"] == "leader"
    assert again["leader_epoch"] > shown["leader_epoch"]
    assert (
        await http.post(f"{V1}/topics/{topic}/records", json={"records": [{"value": "x"}]})
    ).status_code == 200


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/topics/none/partitions/0:role", {"role": "leader"}, 404),
        ("/topics/orders/partitions/1:role", {"role": "leader"}, 404),
        ("/topics/orders/partitions/x:role", {"role": "leader"}, 422),
        ("/topics/orders/partitions/0:role", {"role": "king"}, 422),
        ("/topics/orders/partitions/0:role", {"role": "leader", "more": 1}, 422),
        ("/topics/orders/partitions/0:role", {}, 422),
        ("/cluster:lead", {"unclean": "yes"}, 422),
    ],
)
async def test_what_cannot_be_is_refused(
    http: httpx.AsyncClient, topic: str, path: str, body: dict[str, object], status: int
) -> None:
    await http.put(f"{V1}/topics/{topic}")
    answer = await http.post(V1 + path.replace("orders", topic), json=body)
    assert answer.status_code in (status, 400 if status == 422 else status), answer.text


async def test_a_broker_alone_leads_everything_anyway(http: httpx.AsyncClient) -> None:
    assert (await http.post(f"{V1}/cluster:lead", json={})).json()["refused"] == []
