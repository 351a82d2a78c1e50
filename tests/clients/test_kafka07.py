"""The clients of Kafka 0.7 over the socket: npm's `kafka` in magic 0, `prozess` in magic 1, and curl beside them."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from tests.broker_process import BrokerProcess
from tests.clients.driver import Message
from tests.clients.drivers.kafka07 import SCHEMES, Kafka07Driver, NpmKafka, Prozess
from tests.clients.every_client import GetClient, case

BOTH = [case(NpmKafka), case(Prozess)]
OVERHEAD = {0: 9, 1: 10}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker with a 0.7 door for each message format."""
    process = BrokerProcess(tmp_path_factory.mktemp("kafka07") / "data", schemes=SCHEMES).start()
    yield process
    process.stop()


def values(*texts: str) -> list[Message]:
    return [Message(None, text.encode()) for text in texts]


def read_values(driver: Kafka07Driver, topic: str, count: int, offset: int = 0) -> list[bytes | None]:
    return [message.value for message in driver.read(topic, 0, offset, count)]


@pytest.mark.parametrize("writer", BOTH)
@pytest.mark.parametrize("reader", BOTH)
def test_what_one_client_of_0_7_writes_the_other_reads(
    client: GetClient, writer: type[Kafka07Driver], reader: type[Kafka07Driver]
) -> None:
    topic = f"from-{writer.name}-to-{reader.name}"
    texts = [f"message {i}" for i in range(30)]
    client(writer).write(topic, 0, values(*texts))
    assert read_values(client(reader), topic, 30) == [text.encode() for text in texts]  # type: ignore[arg-type]


@pytest.mark.parametrize("reader", BOTH)
@pytest.mark.client("curl")
def test_what_curl_wrote_is_read_by_clients_of_0_7(
    client: GetClient, broker: BrokerProcess, reader: type[Kafka07Driver]
) -> None:
    topic = f"curl-{reader.name}"
    url = f"{broker.http}/api/v1/topics/{topic}/records"
    for text in ("first", "second", "the third"):
        subprocess.run(
            ["curl", "-sf", "-H", "Content-Type: text/plain", "--data-binary", text, url],
            check=True,
            capture_output=True,
        )
    found = client(reader).read(topic, 0, 0, 3)
    assert [message.value for message in found] == [b"first", b"second", b"the third"]
    assert found[-1].offset == sum(len(m.value or b"") + OVERHEAD[reader.magic] for m in found)
