"""The wire client against a broker that is there, that comes back, and that is away."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from core.records.record import NewRecord
from core.vocabulary.partition import EARLIEST, LATEST
from pipeline.wire.cluster import ClientSettings, Cluster, UnknownTopicError
from pipeline.wire.connection import Connection, Timeouts
from pipeline.wire.errors import ConnectionLostError, WireError
from pipeline.wire.groups import commit, committed
from pipeline.wire.log_dirs import log_directory
from tests.broker_process import BrokerProcess
from tests.pipeline.topics import Topics


def settings(broker: BrokerProcess, *, retry: float = 20.0) -> ClientSettings:
    """How to reach the broker."""
    return ClientSettings((broker.kafka_address,), retry=retry)


@pytest.fixture
def cluster(broker: BrokerProcess) -> Iterator[Cluster]:
    """A client of this file's broker."""
    with Cluster(settings(broker)) as made:
        yield made


def test_topics_their_partitions_and_bounds_are_told(topics: Topics, cluster: Cluster) -> None:
    name = topics.create("bounds", partitions=3)
    topics.fill(name, 20, partitions=2, batch=5)
    topics.truncate(name, 7)
    assert cluster.topics([name]) == {name: [0, 1, 2]}
    assert cluster.topics(None)[name] == [0, 1, 2]
    partitions = [(name, partition) for partition in range(3)]
    assert list(cluster.offsets(dict.fromkeys(partitions, EARLIEST)).values()) == [7, 0, 0]
    assert list(cluster.offsets(dict.fromkeys(partitions, LATEST)).values()) == [20, 20, 0]


def test_a_time_is_the_offset_of_the_first_record_that_is_as_young(topics: Topics, cluster: Cluster) -> None:
    name = topics.create("times")
    topics.write(name, [NewRecord(value=b"v", timestamp=1_700_000_000_000 + n * 10) for n in range(5)])
    ask = {ms: cluster.offsets({(name, 0): 1_700_000_000_000 + ms})[name, 0] for ms in (0, 5, 40, 41)}
    assert ask == {0: 0, 5: 1, 40: 4, 41: -1}


def test_a_topic_that_is_not_there_is_named_and_never_created(topics: Topics, cluster: Cluster) -> None:
    with pytest.raises(UnknownTopicError, match="the cluster has no topic 'nowhere'"):
        cluster.topics(["nowhere"])
    assert cluster.topics(["nowhere"], missing_ok=True) == {}
    assert "nowhere" not in topics.wire.topics()
    name = topics.create("one-partition")
    with pytest.raises(UnknownTopicError, match="topic one-partition has no partition 4, only 1"):
        cluster.leader(name, 4)


def test_offsets_are_committed_for_a_group_and_read_back(topics: Topics, cluster: Cluster) -> None:
    name = topics.create("committed", partitions=2)
    commit(cluster, "job", {(name, 0): 5, (name, 1): 0})
    assert committed(cluster, "job", {name: [0, 1]}) == {(name, 0): 5, (name, 1): 0}
    assert committed(cluster, "nobody", {name: [0, 1]}) == {}


def test_the_broker_says_where_its_files_are(topics: Topics, cluster: Cluster) -> None:
    name = topics.create("files")
    topics.write(name, ["a"])
    assert log_directory(cluster, name, 0) == str(topics.broker.data_dir.absolute())


@pytest.mark.slow
def test_a_broker_that_restarts_is_waited_for(
    topics: Topics, broker: BrokerProcess, cluster: Cluster
) -> None:
    name = topics.create("restart")
    topics.write(name, ["a", "b"])
    assert cluster.offsets({(name, 0): LATEST}) == {(name, 0): 2}
    broker.stop()
    later = threading.Timer(0.5, broker.start)
    later.start()
    assert cluster.offsets({(name, 0): LATEST}) == {(name, 0): 2}
    later.join()


def test_a_broker_that_stays_away_is_named_when_patience_is_over() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    start = time.monotonic()
    with (
        Cluster(ClientSettings((("127.0.0.1", port),), retry=0.3)) as cluster,
        pytest.raises(ConnectionLostError, match=f"no connection to the broker at 127.0.0.1:{port}"),
    ):
        cluster.topics(None)
    assert 0.1 <= time.monotonic() - start < 5


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "says its answer to ApiVersions has 1213486160 bytes"),
        (b"", "lost while waiting for the answer to ApiVersions: the broker closed"),
        (None, "lost while waiting for the answer to ApiVersions: no answer in time"),
        (b"\0\0\0\x06\0\0\0\x01\0\0", "the answer of .* to ApiVersions cannot be read"),
        (b"\0\0\0\x04\0\0\0\x07", "answered request 7 where 1 was asked"),
    ],
)
def test_what_is_no_kafka_broker_is_told_from_one(answer: bytes | None, says: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with server.accept()[0] as peer:
                peer.recv(1000)
                if answer is None:
                    time.sleep(1)
                else:
                    peer.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(WireError, match=says):
            Connection(*server.getsockname(), client_id="t", timeouts=Timeouts(1, 0.3))
        thread.join()
