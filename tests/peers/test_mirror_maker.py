"""MirrorMaker 2, in dedicated mode, copies a topic from Sluice to a real Kafka and from there back."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

from tests.broker_process import BrokerProcess
from tests.peers.jvm import JavaProcess, properties
from tests.peers.kafka import KafkaProcess
from tests.peers.reading import Cluster

PARTITIONS, BEFORE, AFTER = 3, 300, 150
THERE, BACK = "ours.orders", "kafka.ours.orders"
SETTINGS = {"retention.ms": "86400000", "max.message.bytes": "2000000", "min.cleanable.dirty.ratio": "0.25"}


def fill(cluster: Cluster, first: int, count: int) -> None:
    """Records with keys, headers and times into all partitions in turn; each tenth has no value."""
    now = int(time.time() * 1000)
    cluster.write(
        "orders",
        (
            {
                "key": b"k%d" % (n % 17),
                "value": None if n % 10 == 0 else b"order %d" % n,
                "partition": n % PARTITIONS,
                "headers": [("n", b"%d" % n)],
                "timestamp": now - 100_000 + n,
            }
            for n in range(first, first + count)
        ),
    )


def mirror(ours: str, kafka: str, directory: Path) -> JavaProcess:
    """A MirrorMaker with two hops: a second name for Sluice keeps the way back from being taken for a cycle."""
    settings: dict[str, object] = {
        "clusters": "ours,kafka,back",
        "ours.bootstrap.servers": ours,
        "kafka.bootstrap.servers": kafka,
        "back.bootstrap.servers": ours,
        "ours->kafka.enabled": "true",
        "ours->kafka.topics": "orders",
        "kafka->back.enabled": "true",
        "kafka->back.topics": THERE.replace(".", r"\\."),
        "groups": "readers",
        "replication.factor": 1,
        "checkpoints.topic.replication.factor": 1,
        "heartbeats.topic.replication.factor": 1,
        "offset-syncs.topic.replication.factor": 1,
        "config.storage.replication.factor": 1,
        "offset.storage.replication.factor": 1,
        "status.storage.replication.factor": 1,
        "offset.storage.partitions": 1,
        "status.storage.partitions": 1,
        "emit.heartbeats.enabled": "false",
        "sync.topic.acls.enabled": "false",
        "sync.group.offsets.enabled": "true",
        "sync.group.offsets.interval.seconds": 1,
        "emit.checkpoints.interval.seconds": 1,
        "sync.topic.configs.interval.seconds": 1,
        "refresh.topics.interval.seconds": 1,
        "refresh.groups.interval.seconds": 1,
        "offset.lag.max": 0,
    }
    # Workers read these by the name of the cluster that they write to.
    for cluster in ("kafka", "back"):
        settings[f"{cluster}.offset.flush.interval.ms"] = 1000
        settings[f"{cluster}.plugin.discovery"] = "service_load"
    file = properties(directory / "mirror.properties", settings)
    return JavaProcess(directory / "mirror.log", "org.apache.kafka.connect.mirror.MirrorMaker", file)


def has_settings(cluster: Cluster, topic: str, wanted: dict[str, str]) -> bool:
    """Whether a topic has these settings."""
    found = cluster.settings(topic)
    return {name: found[name] for name in wanted} == wanted


def test_a_topic_its_settings_and_a_group_go_to_kafka_and_back(
    sluice: BrokerProcess, kafka: KafkaProcess, tmp_path: Path
) -> None:
    ours, theirs = Cluster(sluice.kafka), Cluster(kafka.bootstrap)
    ours.create("orders", PARTITIONS, **{name.replace(".", "_"): value for name, value in SETTINGS.items()})
    fill(ours, 0, BEFORE)
    with mirror(sluice.kafka, kafka.bootstrap, tmp_path) as running:
        running.wait("the first records come back", lambda: ours.count(BACK) >= BEFORE)
        fill(ours, BEFORE, AFTER)
        running.wait("all records come back", lambda: ours.count(BACK) >= BEFORE + AFTER)
        written = ours.read("orders")
        assert theirs.read(THERE) == written
        assert ours.read(BACK) == written
        assert sum(map(len, written.values())) == BEFORE + AFTER

        # A group that has read one partition to its end and another in part.
        end = len(written[0])
        ours.commit("readers", "orders", {0: end, 1: end // 2})
        running.wait("the group is on Kafka", lambda: theirs.committed("readers", THERE).get(0) == end)
        running.wait("the group comes back", lambda: ours.committed("readers", BACK).get(0) == end)
        # Between the offsets that it keeps, MirrorMaker translates to an earlier one, never to a later one.
        for translated in (theirs.committed("readers", THERE), ours.committed("readers", BACK)):
            assert translated.keys() <= {0, 1}
            assert 0 <= translated.get(1, 0) <= end // 2
        ours.alter("orders", "retention.ms", "43200000")
        for cluster, topic in ((theirs, THERE), (ours, BACK)):
            changed = partial(has_settings, cluster, topic, {**SETTINGS, "retention.ms": "43200000"})
            running.wait(f"the settings of {topic} follow", changed)
