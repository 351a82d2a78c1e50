"""What the tests of the v2 surface share."""

from __future__ import annotations

import json
from typing import Any, Protocol

import httpx
import pytest

JSON = "application/vnd.kafka.json.v2+json"
BINARY = "application/vnd.kafka.binary.v2+json"
TEXT = "application/vnd.kafka.text.v2+json"
V2 = "application/vnd.kafka.v2+json"


class Refused(Protocol):
    """Checks a refusal."""

    def __call__(self, response: httpx.Response, status: int, code: int, *words: str) -> str:
        """The message, if all is as said."""
        ...


@pytest.fixture
def refused() -> Refused:
    """Checks that a response is a refusal in v2's shape, and answers its message."""

    def check(response: httpx.Response, status: int, code: int, *words: str) -> str:
        assert (response.status_code, response.json().get("error_code")) == (status, code), response.text
        body: dict[str, Any] = response.json()
        assert set(body) == {"error_code", "message"}
        message: str = body["message"]
        assert message
        for word in words:
            assert word in message
        return message

    return check


class Group:
    """A consumer group of the v2 surface, as a client uses it."""

    def __init__(self, http: httpx.AsyncClient, name: str) -> None:
        self.http = http
        self.name = name

    async def create(self, instance: str = "i", **options: Any) -> Instance:
        """A new instance; dots in option names are written as underscores."""
        body = {"name": instance} | {name.replace("_", "."): value for name, value in options.items()}
        answer = await self.http.post(f"/consumers/{self.name}", json=body)
        assert answer.status_code == 200, answer.text
        return Instance(self.http, answer.json()["base_uri"])


class Instance:
    """A consumer instance at its `base_uri`."""

    def __init__(self, http: httpx.AsyncClient, base_uri: str) -> None:
        self.http = http
        self.base_uri = base_uri

    async def call(self, method: str, path: str, body: Any = None, **headers: str) -> httpx.Response:
        """A request below the instance."""
        url = f"{self.base_uri}/{path}" if path else self.base_uri
        content = {} if body is None else {"content": json.dumps(body).encode()}
        types = {} if body is None else {"content-type": V2}
        return await self.http.request(method, url, headers=types | headers, **content)

    async def done(self, method: str, path: str, body: Any = None) -> None:
        """The same, with 204 for an answer."""
        answer = await self.call(method, path, body)
        assert (answer.status_code, answer.content) == (204, b""), answer.text

    async def subscribe(self, *topics: str) -> None:
        """Subscribe to topics."""
        await self.done("POST", "subscription", {"topics": topics})

    async def assign(self, *partitions: tuple[str, int]) -> None:
        """Read these partitions."""
        await self.done("POST", "assignments", {"partitions": places(*partitions)})

    async def read(self, query: str = "timeout=5000") -> list[dict[str, Any]]:
        """The next records."""
        answer = await self.call("GET", f"records?{query}")
        assert answer.status_code == 200, answer.text
        found: list[dict[str, Any]] = answer.json()
        return found

    async def values(self, query: str = "timeout=5000") -> list[Any]:
        """Their values."""
        return [record["value"] for record in await self.read(query)]

    async def committed(self, topic: str, partition: int = 0) -> int | None:
        """The committed offset of a partition."""
        answer = await self.call("GET", f"offsets?topic={topic}&partition={partition}")
        assert answer.status_code == 200, answer.text
        offsets = answer.json()["offsets"]
        return offsets[0]["offset"] if offsets else None


def places(*partitions: tuple[str, int]) -> list[dict[str, Any]]:
    """Partitions as v2 writes them."""
    return [{"topic": topic, "partition": partition} for topic, partition in partitions]


@pytest.fixture
def group(http: httpx.AsyncClient, request: pytest.FixtureRequest) -> Group:
    """A consumer group of this test alone."""
    return Group(http, "".join(c if c.isalnum() else "-" for c in request.node.name)[:200])


async def write(http: httpx.AsyncClient, topic: str, *values: Any) -> None:
    """Write values as JSON."""
    body = {"records": [{"value": value} for value in values]}
    answer = await http.post(f"/topics/{topic}", json=body, headers={"content-type": JSON})
    assert answer.status_code == 200, answer.text
