"""A source of Kafka Connect with exactly-once support (KIP-618): each line of a file is one committed record."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import pytest

from tests.broker_process import BrokerProcess
from tests.peers.committed import hanging_transactions, open_offsets, read_all
from tests.peers.jvm import JavaProcess, properties
from tests.peers.kafka import Tools
from tests.peers.reading import Cluster
from tests.peers.test_connect import DISTRIBUTED, LINES, WORKER, append, call, expected
from tests.ports import free_ports

TOPIC = "exactly-once-lines"
# What the Java client raises when a newer producer has its transactional id.
FENCED = re.compile(r"ProducerFencedException|InvalidProducerEpochException")
# Other topics and another group than those of test_connect.py.
EXACTLY_ONCE = {
    **WORKER,
    **DISTRIBUTED,
    **{f"{name}.storage.topic": f"exactly-once-{name}" for name in ("config", "offset", "status")},
    "group.id": "exactly-once-workers",
    "exactly.once.source.support": "enabled",
}


class Lines:
    """The file that the source reads: numbered lines."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.count = 0

    def write(self, count: int = LINES) -> None:
        """Add lines."""
        append(self._directory, self.count, count)
        self.count += count


def in_a_transaction(cluster: Cluster, file: Lines) -> bool:
    """Whether there are records that are not committed; there are more lines otherwise."""
    if TOPIC in cluster.topics() and open_offsets(cluster, TOPIC):
        return True
    file.write(10)
    return False


def committed_lines(cluster: Cluster) -> list[str]:
    """The values of all committed records."""
    found = read_all(cluster, TOPIC, committed=True)
    return [(one.value() or b"").decode() for one in found.get(0, [])]


@pytest.mark.timeout(420)
def test_each_line_is_one_committed_record(sluice: BrokerProcess, tools: Tools, tmp_path: Path) -> None:
    cluster, file, urls = Cluster(sluice.kafka), Lines(tmp_path), {}
    source = {
        "name": "exactly-once-source",
        "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
        "file": tmp_path / "in.txt",
        "topic": TOPIC,
        "exactly.once.support": "required",
        "transaction.boundary": "interval",
        "transaction.boundary.interval.ms": 300,
    }

    def worker(name: str) -> JavaProcess:
        urls[name] = f"http://127.0.0.1:{free_ports(1)[0]}"
        settings = {**EXACTLY_ONCE, "bootstrap.servers": sluice.kafka, "listeners": urls[name]}
        main = "org.apache.kafka.connect.cli.ConnectDistributed"
        written = properties(tmp_path / f"{name}.properties", settings)
        return JavaProcess(tmp_path / f"{name}.log", main, written)

    def pause_in_a_transaction(running: JavaProcess) -> None:
        def paused() -> bool:
            if in_a_transaction(cluster, file):
                running.pause()
                # Again: the broker may still have read what the worker had sent.
                if open_offsets(cluster, TOPIC):
                    return True
                running.resume()
            return False

        running.wait("a transaction is open", paused)

    file.write()
    with worker("first") as first:
        make = partial(call, "PUT", f"{urls['first']}/connectors/{source['name']}/config", source)
        first.wait("the source is made", make)
        # Killed in a transaction, and started again.
        pause_in_a_transaction(first)
        first.kill()
        file.write()
        first.start()
        first.wait("all lines are committed", lambda: len(committed_lines(cluster)) >= file.count)
        # It stands still until another worker has fenced its producers; then it continues what it was doing.
        pause_in_a_transaction(first)
        with worker("second") as second:
            file.write()
            second.wait("the second one has taken over", lambda: len(committed_lines(cluster)) >= file.count)
            first.resume()
            first.wait("it is fenced", lambda: FENCED.search(first.log.read_text(errors="replace")))
            file.write()
            second.wait("all lines are committed", lambda: len(committed_lines(cluster)) >= file.count)
    assert committed_lines(cluster) == expected(file.count)
    # And there was what to hide: records of the transactions that were open.
    assert len(read_all(cluster, TOPIC, committed=False)[0]) > file.count
    assert hanging_transactions(tools, sluice) == []
