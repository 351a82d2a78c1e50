"""A Kafka Streams application with exactly_once_v2 (KIP-447): each word is counted once, whatever is killed."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.broker_process import BrokerProcess
from tests.peers.committed import hanging_transactions, open_offsets, read_all
from tests.peers.jvm import JavaProcess
from tests.peers.kafka import Tools
from tests.peers.reading import Cluster
from tests.peers.test_streams import APPLICATION, CHANGELOG, PARTITIONS, SEED, WORDS, is_caught_up, write

LINES = 2000


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A Sluice that may be killed."""
    settings = {
        "SLUICE_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
        "SLUICE_GROUP_MIN_SESSION_TIMEOUT_MS": "1000",
        "SLUICE_COMPACTION_INTERVAL_MS": "500",
    }
    process = BrokerProcess(tmp_path / "broker", environment=settings)
    try:
        yield process.start()
    finally:
        process.kill()
    assert "Traceback" not in process.read_log(), process.read_log()[-20_000:]


def committed_counts(cluster: Cluster, topic: str) -> dict[str, list[int]]:
    """Every committed count of each word, in order."""
    found: dict[str, list[int]] = defaultdict(list)
    for messages in read_all(cluster, topic, committed=True).values():
        for one in messages:
            word, count = one.key(), one.value()
            assert word is not None and count is not None
            found[word.decode()].append(int.from_bytes(count, "big"))
    return found


class Lines:
    """Lines of words at random that are written to the application, and how often each word is in them."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._chance = random.Random(SEED)
        self.words: Counter[str] = Counter()

    def write(self, count: int = LINES) -> None:
        """Write more of them."""
        self.words += write(self._cluster, [" ".join(self._chance.choices(WORDS, k=5)) for _ in range(count)])


def in_a_transaction(cluster: Cluster, lines: Lines) -> bool:
    """Whether there are counts that are not committed; there is more to count otherwise."""
    if open_offsets(cluster, "counts"):
        return True
    lines.write(100)
    return False


def pause_in_a_transaction(running: JavaProcess, cluster: Cluster, lines: Lines) -> None:
    """Let the application stand still while a transaction of it has counts that it has not committed."""

    def paused() -> bool:
        if in_a_transaction(cluster, lines):
            running.pause()
            # Again: the broker may still have read what the application had sent.
            if open_offsets(cluster, "counts"):
                return True
            running.resume()
        return False

    running.wait("a transaction is open", paused)


@pytest.mark.timeout(420)
def test_words_are_counted_exactly_once(broker: BrokerProcess, tools: Tools, tmp_path: Path) -> None:
    cluster = Cluster(broker.kafka)
    for topic in ("lines", "counts"):
        cluster.create(topic, PARTITIONS)

    def application(name: str) -> JavaProcess:
        arguments = (broker.kafka, APPLICATION, str(tmp_path / name), "exactly_once_v2")
        return JavaProcess(tmp_path / f"{name}.log", "WordCount", *arguments)

    def how_many(topic: str, *, committed: bool = True) -> int:
        return sum(map(len, read_all(cluster, topic, committed=committed).values()))

    lines = Lines(cluster)
    lines.write()
    with application("first") as first:
        # Killed in a transaction, and started again: the same producers abort it.
        first.wait("it counts", lambda: cluster.count("counts"))
        pause_in_a_transaction(first, cluster, lines)
        first.kill()
        before = cluster.count("counts")
        lines.write()
        first.start()
        first.wait("it continues", lambda: cluster.count("counts") > before + 100)
        # It stands still until another one has its partitions; then it continues what it was doing.
        pause_in_a_transaction(first, cluster, lines)
        first.wait("the changelog is compacted", lambda: how_many(CHANGELOG) < how_many("counts"))
        with application("second") as second:
            second.wait("the second one has counted all", lambda: is_caught_up(cluster))
            first.resume()
            lines.write()
            second.wait("all is counted with both", lambda: is_caught_up(cluster))

            # The broker is killed in a transaction, and both continue when it is back.
            lines.write()
            second.wait("a transaction is open", lambda: in_a_transaction(cluster, lines))
            broker.kill()
            broker.start()
            second.wait("all is counted", lambda: is_caught_up(cluster))

    # Each word has each count up to its last one: none was counted again, none is missing.
    counts = {word: list(range(1, count + 1)) for word, count in lines.words.items()}
    assert committed_counts(cluster, "counts") == counts
    changes = committed_counts(cluster, CHANGELOG)
    assert {word: found[-1] for word, found in changes.items()} == lines.words
    # And there was what to hide: records of the transactions that were open at the kills.
    assert how_many("counts", committed=False) > lines.words.total()
    assert hanging_transactions(tools, broker) == []
