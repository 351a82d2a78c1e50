"""What the tests of the v2 surface share."""

from __future__ import annotations

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
