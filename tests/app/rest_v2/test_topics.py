"""Metadata of the v2 surface: every row of its table, and what is not there."""

from __future__ import annotations

import httpx
import pytest
import pytest_asyncio

from app.main import Application
from tests.app.rest_v2.conftest import JSON, V2, Refused

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module", autouse=True)
async def some_topics(app: Application) -> None:
    broker = app.shared.broker
    await broker.topics.create("orders", partitions=2, configs={"retention.ms": "1000"})
    await broker.topics.create("audit")


async def test_the_root_is_an_empty_object(http: httpx.AsyncClient) -> None:
    answer = await http.get("/")
    assert (answer.status_code, answer.json()) == (200, {})


async def test_the_brokers_are_ids(http: httpx.AsyncClient) -> None:
    assert (await http.get("/brokers")).json() == {"brokers": [1]}


async def test_topics_are_names(http: httpx.AsyncClient) -> None:
    assert (await http.get("/topics")).json() == ["audit", "orders"]


PARTITION = {"leader": 1, "replicas": [{"broker": 1, "leader": True, "in_sync": True}]}


async def test_a_topic_has_its_settings_and_partitions(http: httpx.AsyncClient) -> None:
    topic = (await http.get("/topics/orders")).json()
    assert set(topic) == {"name", "configs", "partitions"}
    assert topic["name"] == "orders"
    assert topic["configs"]["retention.ms"] == "1000"
    assert topic["configs"]["cleanup.policy"] == "delete"
    assert topic["partitions"] == [{"partition": 0} | PARTITION, {"partition": 1} | PARTITION]


async def test_partitions_are_available_by_themselves(http: httpx.AsyncClient) -> None:
    all_of_them = (await http.get("/topics/orders/partitions")).json()
    assert all_of_them == [{"partition": 0} | PARTITION, {"partition": 1} | PARTITION]
    assert (await http.get("/topics/orders/partitions/1")).json() == all_of_them[1]


async def test_offsets_are_the_first_kept_and_the_next(http: httpx.AsyncClient) -> None:
    path = "/topics/orders/partitions/0"
    assert (await http.get(f"{path}/offsets")).json() == {"beginning_offset": 0, "end_offset": 0}
    records = {"records": [{"value": n} for n in range(3)]}
    await http.post(path, json=records, headers={"content-type": JSON})
    assert (await http.get(f"{path}/offsets")).json() == {"beginning_offset": 0, "end_offset": 3}


@pytest.mark.parametrize(
    ("path", "code"),
    [
        # An unknown topic is 40403 here, and here alone.
        ("/topics/nothing", 40403),
        ("/topics/nothing/partitions", 40401),
        ("/topics/nothing/partitions/0", 40401),
        ("/topics/nothing/partitions/0/offsets", 40401),
        ("/topics/nothing/partitions/0/records", 40401),
        ("/topics/orders/partitions/2", 40402),
        ("/topics/orders/partitions/-1", 40402),
        ("/topics/orders/partitions/2/offsets", 40402),
        ("/topics/orders/partitions/2/records", 40402),
        ("/topics/orders/partitions/first", 404),
        ("/topics/orders/partitions/99999999999999999999", 404),
        ("/topics/orders/partitions/1e0/offsets", 404),
        ("/topics/orders/nothing", 404),
        ("/topics/orders/partitions/0/nothing", 404),
        ("/brokers/1", 404),
        ("/consumers", 404),
        ("/topics/a%2Fb/partitions/0/records/9", 404),
    ],
)
async def test_what_is_not_there_is_404_with_its_code(
    http: httpx.AsyncClient, refused: Refused, path: str, code: int
) -> None:
    refused(await http.get(path), 404, code)


@pytest.mark.parametrize(
    "path",
    [
        "/brokers", "/topics", "/topics/orders", "/topics/orders/partitions", "/topics/orders/partitions/0",
        "/topics/orders/partitions/0/offsets", "/topics/orders/partitions/0/records",
    ],
)  # fmt: skip
async def test_a_trailing_slash_makes_no_difference(http: httpx.AsyncClient, path: str) -> None:
    plain, slashed = await http.get(path), await http.get(path + "/")
    assert (plain.status_code, plain.json()) == (slashed.status_code, slashed.json())
    assert plain.status_code == 200


@pytest.mark.parametrize(
    ("path", "allow"),
    [("/", "GET"), ("/brokers", "GET"), ("/topics", "GET"), ("/topics/orders", "GET, POST"),
     ("/topics/orders/partitions/0", "GET, POST"), ("/consumers/g", "POST")],
)  # fmt: skip
async def test_another_method_is_405(
    http: httpx.AsyncClient, refused: Refused, path: str, allow: str
) -> None:
    answer = await http.request("PATCH", path)
    refused(answer, 405, 405)
    assert answer.headers["allow"] == allow


async def test_head_answers_as_get_does(http: httpx.AsyncClient) -> None:
    assert (await http.head("/topics/orders")).status_code == 200


async def test_every_answer_carries_a_request_id(http: httpx.AsyncClient) -> None:
    answer = await http.get("/topics/nothing", headers={"x-request-id": "abc", "accept": V2})
    assert answer.headers["x-request-id"] == "abc"
    assert answer.headers["content-type"] == V2
