"""A client of each kind to one broker per file; `name` gives names that no other test of the file has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.broker_process import BrokerProcess
from tests.contract.clients import KafkaClient


@pytest.fixture
def client(broker: BrokerProcess, request: pytest.FixtureRequest) -> Iterator[Any]:
    """The client under test; parametrize it with `having(...)` and indirect=True."""
    opened = request.param(broker)
    yield opened
    opened.close()


@pytest.fixture
def kafka(broker: BrokerProcess) -> Iterator[KafkaClient]:
    """The binary client, for setting up what the client under test cannot."""
    opened = KafkaClient(broker)
    yield opened
    opened.close()


@pytest.fixture
def name(request: pytest.FixtureRequest) -> Callable[[], str]:
    """Names for topics and groups."""
    count = 0

    def next_name() -> str:
        nonlocal count
        count += 1
        return f"{request.node.name[:120].translate(_LEGAL)}.{count}"

    return next_name


_LEGAL = str.maketrans({"[": "-", "]": "", " ": "-"})
