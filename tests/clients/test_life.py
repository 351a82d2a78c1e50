"""A client's day: a topic made by writing, waiting for news, a wrong offset, a broker that restarts under it."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from core.errors import ErrorCode
from tests.broker_process import BrokerProcess
from tests.clients.driver import Driver, Message, RefusedError
from tests.clients.every_client import DRIVERS, OLD_DRIVERS, GetClient, able
from tests.clients.wire import NOW, Wire

# kafka-python sometimes drops a socket without closing it when its broker stops.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")

# librdkafka's own number for "there is no such offset and I may not reset" (RD_KAFKA_RESP_ERR__AUTO_OFFSET_RESET).
LIBRDKAFKA_NO_RESET = -140


def _messages(*values: str) -> list[Message]:
    return [Message(None, value.encode(), (), NOW) for value in values]


def _values(found: list[Message]) -> list[str]:
    return [(message.value or b"").decode() for message in found]


@pytest.mark.parametrize("driver", able("write", "read", among=(*DRIVERS, *OLD_DRIVERS)))
def test_writing_to_a_topic_that_is_not_there_makes_it(client: GetClient, driver: type[Driver]) -> None:
    topic = f"made-by-{driver.name}"
    client(driver).write(topic, 0, _messages("first"))
    assert _values(client(driver).read(topic, 0, 0, 1)) == ["first"]
    assert client(driver).topics()[topic] == 1


@pytest.mark.parametrize("driver", able("write", "read"))
def test_a_reader_that_waits_gets_a_new_record_at_once(
    client: GetClient, wire: Wire, driver: type[Driver]
) -> None:
    topic = f"news-for-{driver.name}"
    wire.create_topic(topic)
    client(driver).write(topic, 0, _messages("old"))
    assert _values(client(driver).read(topic, 0, 0, 1)) == ["old"]
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(client(driver).read, topic, 0, 1, 1)
        time.sleep(0.5)
        assert not waiting.done()
        start = time.monotonic()
        wire.write(topic, "new")
        assert _values(waiting.result(10)) == ["new"]
        assert time.monotonic() - start < 3


@pytest.mark.parametrize("driver", able("read", "bounds"))  # kcat moves to the end instead
def test_an_offset_beyond_the_end_is_refused(client: GetClient, wire: Wire, driver: type[Driver]) -> None:
    topic = f"beyond-{driver.name}"
    wire.create_topic(topic)
    wire.write(topic, "one")
    with pytest.raises(RefusedError) as refused:
        client(driver).read(topic, 0, 1000, 1)
    assert refused.value.code in (ErrorCode.OFFSET_OUT_OF_RANGE, LIBRDKAFKA_NO_RESET)


# One of each age: their pins differ in what they say, not in how they live.
AGES = (
    *DRIVERS,
    *(d for d in OLD_DRIVERS if d.name in ("kafka-python-2.0.2-as-0.9", "kcat-as-0.8.2", "kafka-node")),
)


@pytest.mark.parametrize("end", ["stop", "kill"])
@pytest.mark.parametrize("driver", able("write", "read", among=AGES))
def test_a_client_continues_after_its_broker_was_restarted(
    client: GetClient, broker: BrokerProcess, driver: type[Driver], end: str
) -> None:
    topic = f"restart-{end}-{driver.name}"
    client(driver).write(topic, 0, _messages("before"))
    assert _values(client(driver).read(topic, 0, 0, 1)) == ["before"]
    getattr(broker, end)()
    broker.start()
    client(driver).write(topic, 0, _messages("after"))
    assert _values(client(driver).read(topic, 0, 0, 2)) == ["before", "after"]
