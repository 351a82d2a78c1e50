"""app.principal: everybody is the same, until there are credentials."""

from __future__ import annotations

from typing import Any, cast

from app.principal import principal_of
from app.requests import InFlight, Request
from core.config import Config


def test_everybody_is_anonymous_whatever_he_says_he_is() -> None:
    for claim in ((b"authorization", b"Basic YTpi"), (b"x-forwarded-user", b"root")):
        scope = cast(Any, {"type": "http", "headers": [claim], "query_string": b"user=root"})
        request = Request(scope, cast(Any, None), dict([claim]), Config(), InFlight(1))
        assert principal_of(request) == "anonymous"
