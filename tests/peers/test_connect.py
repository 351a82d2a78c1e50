"""Kafka Connect with Sluice as its only broker: lines of a file go through a topic to another file."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from functools import partial
from pathlib import Path

from tests.broker_process import BrokerProcess
from tests.peers.jvm import JavaProcess, properties
from tests.peers.reading import Cluster
from tests.ports import free_ports

LINES = 400
WORKER = {
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.storage.StringConverter",
    "offset.flush.interval.ms": 300,
    "plugin.discovery": "service_load",
}
# What a worker that was killed leaves must be taken over in seconds, not in the minutes of the defaults.
DISTRIBUTED = {
    "group.id": "workers",
    "session.timeout.ms": 3000,
    "heartbeat.interval.ms": 500,
    "scheduled.rebalance.max.delay.ms": 0,
    "consumer.session.timeout.ms": 3000,
    "consumer.heartbeat.interval.ms": 500,
    "config.storage.topic": "connect-configs",
    "offset.storage.topic": "connect-offsets",
    "status.storage.topic": "connect-status",
    "config.storage.replication.factor": 1,
    "offset.storage.replication.factor": 1,
    "status.storage.replication.factor": 1,
}


def connectors(directory: Path, topic: str) -> list[dict[str, object]]:
    """The settings of a source that reads `in.txt` and of a sink that writes `out.txt`."""
    of_file = "org.apache.kafka.connect.file.FileStream"
    source = {
        "name": f"{topic}-source",
        "connector.class": f"{of_file}SourceConnector",
        "file": directory / "in.txt",
        "topic": topic,
    }
    sink = {
        "name": f"{topic}-sink",
        "connector.class": f"{of_file}SinkConnector",
        "file": directory / "out.txt",
        "topics": topic,
    }
    return [source, sink]


def append(directory: Path, first: int, count: int) -> None:
    """Add numbered lines to the file that the source reads."""
    with (directory / "in.txt").open("a") as file:
        file.writelines(f"line {number}\n" for number in range(first, first + count))


def written(directory: Path) -> list[str]:
    """The whole lines of the file that the sink writes."""
    file = directory / "out.txt"
    return file.read_text().split("\n")[:-1] if file.exists() else []


def expected(count: int) -> list[str]:
    """The lines as `append` wrote them."""
    return [f"line {number}" for number in range(count)]


def call(method: str, url: str, body: object = None) -> object:
    """Send a request to Connect's REST API; None if the worker does not answer yet, or is rebalancing."""
    data = None if body is None else json.dumps(body, default=str).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=90) as answer:
            return json.loads(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            assert error.code in (404, 409, 500, 503), error.read()
        return None
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return None


def test_standalone_carries_each_line_once_and_in_order(sluice: BrokerProcess, tmp_path: Path) -> None:
    append(tmp_path, 0, LINES)
    worker = {
        **WORKER,
        "bootstrap.servers": sluice.kafka,
        "listeners": f"http://127.0.0.1:{free_ports(1)[0]}",
        "offset.storage.file.filename": tmp_path / "offsets",
    }
    files = [properties(tmp_path / "worker.properties", worker)]
    for settings in connectors(tmp_path, "standalone"):
        files.append(properties(tmp_path / f"{settings['name']}.properties", settings))
    main = "org.apache.kafka.connect.cli.ConnectStandalone"
    with JavaProcess(tmp_path / "connect.log", main, *files) as running:
        running.wait("the first lines arrive", lambda: len(written(tmp_path)) >= LINES)
        append(tmp_path, LINES, LINES)
        running.wait("all lines arrive", lambda: len(written(tmp_path)) >= 2 * LINES)
        cluster = Cluster(sluice.kafka)
        running.wait(
            "the sink commits",
            lambda: cluster.committed("connect-standalone-sink", "standalone") == {0: 2 * LINES},
        )
    assert written(tmp_path) == expected(2 * LINES)


def test_distributed_loses_no_line_when_its_worker_is_killed(sluice: BrokerProcess, tmp_path: Path) -> None:
    append(tmp_path, 0, LINES)
    url = f"http://127.0.0.1:{free_ports(1)[0]}"
    settings = {**WORKER, **DISTRIBUTED, "bootstrap.servers": sluice.kafka, "listeners": url}
    worker = properties(tmp_path / "worker.properties", settings)
    main = "org.apache.kafka.connect.cli.ConnectDistributed"
    with JavaProcess(tmp_path / "connect.log", main, worker) as running:
        running.wait("the worker answers", lambda: call("GET", f"{url}/connectors") == [])
        for one in connectors(tmp_path, "distributed"):
            make = partial(call, "PUT", f"{url}/connectors/{one['name']}/config", one)
            running.wait(f"{one['name']} is made", make)
        running.wait("the first lines arrive", lambda: len(written(tmp_path)) >= LINES)
        cluster = Cluster(sluice.kafka)
        for name in ("configs", "offsets", "status"):
            assert cluster.settings(f"connect-{name}")["cleanup.policy"] == "compact"

        # Killed with lines on their way, and more of them are written while there is no worker.
        append(tmp_path, LINES, LINES)
        running.wait("some lines arrive", lambda: len(written(tmp_path)) > LINES)
        running.kill()
        append(tmp_path, 2 * LINES, LINES)
        if not (tmp_path / "out.txt").read_text().endswith("\n"):
            with (tmp_path / "out.txt").open("a") as file:
                file.write("\n")
        running.start()
        wanted = expected(3 * LINES)
        running.wait("all lines arrive", lambda: set(wanted) <= set(written(tmp_path)))
    # At least once: lines may come again, but the first of each comes in order.
    assert [one for one in dict.fromkeys(written(tmp_path)) if one in set(wanted)] == wanted
