"""One real Kafka, one Sluice and one JVM of Kafka's tools for the whole of tests/peers, which runs in one process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.broker_process import BrokerProcess
from tests.peers.kafka import KafkaProcess, Tools


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test here needs what tests/peers/fetch.py fetches."""
    for item in items:
        if "/tests/peers/" in item.path.as_posix():
            item.add_marker(pytest.mark.client("kafka"))


def _start(tmp_path_factory: pytest.TempPathFactory, release: str) -> KafkaProcess:
    """Start a node, once more if it does not come up: another process may have taken a port in between."""
    try:
        return KafkaProcess(tmp_path_factory.mktemp(release), release=release).start()
    except AssertionError as error:
        print(error)
        return KafkaProcess(tmp_path_factory.mktemp(release), release=release).start()


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaProcess]:
    """Apache Kafka 4.1, one node in KRaft mode."""
    process = _start(tmp_path_factory, "kafka-4.1")
    yield process
    process.kill()


@pytest.fixture(scope="session")
def kafka39(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaProcess]:
    """Apache Kafka 3.9, one node in KRaft mode."""
    process = _start(tmp_path_factory, "kafka-3.9")
    yield process
    process.kill()


@pytest.fixture(scope="session")
def sluice(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Sluice, for the whole of tests/peers; its log must hold no traceback in the end."""
    # As in tests/peers/kafka.py: a group starts at once, and members may be found dead after a second.
    environment = {
        "SLUICE_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
        "SLUICE_GROUP_MIN_SESSION_TIMEOUT_MS": "1000",
        # A test that creates users switches the authorizer on; the others may do everything as before.
        "SLUICE_ALLOW_EVERYONE_IF_NO_ACL_FOUND": "true",
    }
    process = BrokerProcess(tmp_path_factory.mktemp("sluice") / "data", environment=environment)
    try:
        yield process.start()
        died = not process.running
    finally:
        process.kill()
    log = process.read_log()
    assert not died, f"the broker died during the tests:\n{log[-20_000:]}"
    assert "Traceback" not in log, f"the broker's log holds a traceback:\n{log[-20_000:]}"


@pytest.fixture(scope="session")
def tools() -> Iterator[Tools]:
    """Kafka 4.1's command-line tools in one JVM."""
    process = Tools()
    try:
        yield process
    finally:
        process.close()
