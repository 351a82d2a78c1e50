"""The clients of Kafka 0.7 over the socket: npm's `kafka` in magic 0, `prozess` in magic 1, and curl beside them."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.broker_process import BrokerProcess
from tests.clients.driver import Message, RefusedError
from tests.clients.drivers.kafka07 import SCHEMES, Kafka07Driver, NpmKafka, Prozess
from tests.clients.drivers.rest import Rest
from tests.clients.every_client import GetClient, case

BOTH = [case(NpmKafka), case(Prozess)]
OVERHEAD = {0: 9, 1: 10}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker with a 0.7 listener for each message format."""
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


def produce_by_curl(broker: BrokerProcess, topic: str, lines: list[str]) -> None:
    url = f"{broker.http}/api/v1/topics/{topic}/records"
    subprocess.run(
        [
            "curl",
            "-sf",
            "-H",
            "Content-Type: application/x-ndjson",
            "--data-binary",
            "@-",
            url,
        ],
        input="\n".join(f'{{"value": "{line}"}}' for line in lines).encode(),
        check=True,
        capture_output=True,
    )


@pytest.mark.client("curl")
@pytest.mark.client("kafka 0.7")
def test_addresses_of_prozess_hold_across_a_restart_a_kill_and_a_view_made_late(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "data", schemes=SCHEMES).start()
    client = Prozess(broker)
    try:
        lines = [f"line {i}" for i in range(300)]
        produce_by_curl(broker, "t", lines)
        expected = [line.encode() for line in lines]
        broker.kill()
        broker.start()
        # No client of 0.7 has used the topic until now.
        first = client.read("t", 0, 0, 100, size=900)
        assert [message.value for message in first] == expected[:100]
        stops = [(i + 1, message.offset) for i, message in enumerate(first) if message.offset >= 0]
        bounds = client.bounds("t", 0)
        for stop in (broker.kill, broker.stop):
            stop()
            broker.start()
            assert client.bounds("t", 0) == bounds
            count, address = stops[-1]
            found = client.read("t", 0, address, 300 - count)
            assert [message.value for message in found] == expected[count:]
        client.write("t", 0, values("after all"))
        assert [m.value for m in client.read("t", 0, bounds[1], 1)] == [b"after all"]
    finally:
        client.close()
        broker.kill()


@pytest.mark.client("kafka 0.7")
def test_prozess_is_told_when_its_address_is_deleted(client: GetClient) -> None:
    prozess = client(Prozess)
    assert isinstance(prozess, Prozess)
    prozess.write("gone", 0, values("one", "two", "three"))
    assert client(Rest).delete_records("gone", 0, 2) == 2
    with pytest.raises(RefusedError, match="OffsetOutOfRange"):
        prozess.read("gone", 0, 0, 1)
    assert prozess.bounds("gone", 0) == (26, 41)
    assert read_values(prozess, "gone", 1, 26) == [b"three"]
    with pytest.raises(RefusedError, match="OffsetOutOfRange"):
        prozess.read("gone", 0, 10_000, 1)
