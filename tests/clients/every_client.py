"""The list of clients, and how a scenario is parametrised over them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from tests.clients.driver import Driver, implements
from tests.clients.drivers.aio_kafka import AioKafka
from tests.clients.drivers.confluent import Confluent
from tests.clients.drivers.go import FranzGo, KafkaGo, Sarama
from tests.clients.drivers.java_client import JAVA
from tests.clients.drivers.kafka_js import KafkaJs
from tests.clients.drivers.kafka_node import KafkaNode
from tests.clients.drivers.kafka_python import KafkaPython
from tests.clients.drivers.kcat import OLD_KCAT, Kcat
from tests.clients.drivers.old_kafka_python import OLD_KAFKA_PYTHON
from tests.clients.drivers.rest import Rest
from tests.clients.drivers.rskafka import RsKafka

DRIVERS: tuple[type[Driver], ...] = (
    Confluent, KafkaPython, AioKafka, KafkaJs, Sarama, FranzGo, KafkaGo, RsKafka, Kcat, *JAVA, Rest,
)  # fmt: skip
# Those of 2012 to 2019, or today's that take the broker for one of then.
OLD_DRIVERS: tuple[type[Driver], ...] = (*OLD_KAFKA_PYTHON, *OLD_KCAT, KafkaNode)

#: What the `client` fixture gives.
GetClient = Callable[[type[Driver]], Driver]


def case(*values: object, marks: Iterable[type[Driver]] = ()) -> object:
    """One parameter set; it is skipped, or fails in CI, where one of the drivers in it is not installed."""
    drivers = [value for value in values if isinstance(value, type)] + list(marks)
    return pytest.param(
        *values,
        marks=[pytest.mark.client(driver.installed_as) for driver in drivers if driver.installed_as],
        id="-".join(value.name if isinstance(value, type) else str(value) for value in values),
    )


def able(*methods: str, among: Iterable[type[Driver]] = DRIVERS) -> list[object]:
    """Every client that has these methods, as parameters."""
    return [case(driver) for driver in among if implements(driver, *methods)]
