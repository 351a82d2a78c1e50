"""The drivers of one test file, each made when a test first asks for it."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Iterator

import pytest

from tests.broker_process import BrokerProcess
from tests.clients.driver import Driver
from tests.clients.wire import Wire


@pytest.fixture(scope="module")
def client(broker: BrokerProcess) -> Iterator[Callable[[type[Driver]], Driver]]:
    """Gives the one instance of a driver class for this file's broker."""
    made: dict[type[Driver], Driver] = {}

    def get(driver: type[Driver]) -> Driver:
        if driver not in made:
            made[driver] = driver(broker)
        return made[driver]

    yield get
    with warnings.catch_warnings():
        # What a client library leaves open is not ours, and must not be held against a later test.
        warnings.simplefilter("ignore", ResourceWarning)
        while made:
            made.popitem()[1].close()
        gc.collect()


@pytest.fixture
def wire(broker: BrokerProcess) -> Iterator[Wire]:
    """A fresh raw connection to the Kafka listener."""
    with Wire(broker.kafka_address) as connection:
        yield connection
