"""A Kafka Streams application, at least once, with its repartition and changelog topics on Sluice."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.broker_process import BrokerProcess
from tests.peers.jvm import JavaProcess
from tests.peers.reading import Cluster

APPLICATION = "word-count"
REPARTITION = f"{APPLICATION}-words-repartition"
CHANGELOG = f"{APPLICATION}-counted-changelog"
PARTITIONS, SEED = 2, 13
WORDS = [f"word{number}" for number in range(40)]


def write(cluster: Cluster, lines: Sequence[str]) -> Counter[str]:
    """Write lines in turn to the partitions; return how often each word is in them."""
    cluster.write(
        "lines",
        (
            {"key": b"%d" % n, "value": line.encode(), "partition": n % PARTITIONS}
            for n, line in enumerate(lines)
        ),
    )
    return Counter(word for line in lines for word in line.split())


def counts(cluster: Cluster) -> Counter[str]:
    """The last count of each word."""
    last: Counter[str] = Counter()
    for records in cluster.read("counts").values():
        for one in records:
            assert one.key is not None and one.value is not None
            last[one.key.decode()] = int.from_bytes(one.value, "big")
    return last


def is_caught_up(cluster: Cluster) -> bool:
    """Whether the application has committed the end of both topics that it reads."""
    return all(
        cluster.committed(APPLICATION, topic)
        == {partition: end for partition, (_, end) in enumerate(cluster.ends(topic)) if end}
        for topic in ("lines", REPARTITION)
    )


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A Sluice that may be killed."""
    settings = {"SLUICE_GROUP_INITIAL_REBALANCE_DELAY_MS": "0", "SLUICE_GROUP_MIN_SESSION_TIMEOUT_MS": "1000"}
    process = BrokerProcess(tmp_path / "broker", environment=settings)
    try:
        yield process.start()
    finally:
        process.kill()
    assert "Traceback" not in process.read_log(), process.read_log()[-20_000:]


def test_words_are_counted_through_kills(broker: BrokerProcess, tmp_path: Path) -> None:
    cluster, chance = Cluster(broker.kafka), random.Random(SEED)
    for topic in ("lines", "counts"):
        cluster.create(topic, PARTITIONS)

    def some(count: int) -> list[str]:
        return [" ".join(chance.choices(WORDS, k=5)) for _ in range(count)]

    truth = write(cluster, some(200))
    arguments = (broker.kafka, APPLICATION, str(tmp_path / "state"), "at_least_once")
    with JavaProcess(tmp_path / "streams.log", "WordCount", *arguments) as running:
        running.wait("the first lines are counted", lambda: counts(cluster) == truth)
        running.wait("all is committed", lambda: is_caught_up(cluster))
        running.wait(
            "what was read is deleted from the repartition topic",
            lambda: all(start for start, end in cluster.ends(REPARTITION) if end),
        )
        assert cluster.settings(CHANGELOG)["cleanup.policy"] == "compact"
        assert cluster.settings(REPARTITION)["retention.ms"] == "-1"

        # Killed in the middle of its work; the state is lost with the machine.
        before = cluster.count("counts")
        truth += write(cluster, some(3000))
        running.wait("some lines are counted", lambda: cluster.count("counts") > before)
        running.kill()
        (tmp_path / "state").rename(tmp_path / "lost")
        running.start()
        running.wait("it has caught up", lambda: is_caught_up(cluster))
        found = counts(cluster)
        assert found.keys() == truth.keys()
        assert all(found[word] >= truth[word] for word in truth), (found, truth)

        # The broker is killed, and the application continues when it is back.
        before = cluster.count("counts")
        truth = found + write(cluster, some(3000))
        running.wait("more lines are counted", lambda: cluster.count("counts") > before)
        broker.kill()
        broker.start()
        running.wait("it has caught up again", lambda: is_caught_up(cluster))
        found = counts(cluster)
        assert all(found[word] >= truth[word] for word in truth), (found, truth)

        # Without a kill nothing is counted again.
        fresh = write(cluster, ["fresh words only", "fresh only", "fresh"])
        running.wait("the last lines are counted", lambda: counts(cluster)["fresh"] >= 3)
        running.wait("all is committed", lambda: is_caught_up(cluster))
        assert counts(cluster) == found + fresh
