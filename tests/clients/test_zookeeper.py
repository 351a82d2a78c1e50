"""A broker as clients of Kafka 0.7 find it: through ZooKeeper alone, also after kill -9, a freeze and a restart."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.broker_process import ROOT, BrokerProcess
from tests.zookeeper_process import ZooKeeperProcess

pytestmark = pytest.mark.client("zookeeper")

SCHEME = "kafka07?magic=1"
WAIT_SECONDS = 30.0
ID = "/brokers/ids/1"


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperProcess]:
    process = ZooKeeperProcess(tmp_path_factory.mktemp("zookeeper"))
    process.start()
    yield process
    process.kill()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, zookeeper: ZooKeeperProcess) -> Iterator[BrokerProcess]:
    process = BrokerProcess(
        tmp_path_factory.mktemp("broker") / "data",
        schemes=[SCHEME],
        options=["--zookeeper", f"{zookeeper.address}/seven"],
        environment={
            "SLUICE_ZOOKEEPER_SESSION_TIMEOUT_MS": "4000",
            "SLUICE_ZOOKEEPER_REFRESH_INTERVAL_MS": "300",
            "SLUICE_DEFAULT_PARTITIONS": "3",
        },
    )
    process.start()
    yield process
    process.kill()
    assert "Traceback" not in process.read_log(), process.read_log()


@pytest.fixture
def looker(zookeeper: ZooKeeperProcess) -> Iterator[Any]:
    """A client of ZooKeeper, below the path that the broker was given."""
    from kazoo.client import KazooClient

    client = KazooClient(hosts=zookeeper.address, timeout=10)
    client.start(timeout=WAIT_SECONDS)
    eventually(lambda: client.exists("/seven"))
    client.chroot = "/seven"
    yield client
    client.stop()
    client.close()


def eventually(what: Callable[[], Any]) -> Any:
    """Wait until something is true, and answer it."""
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        if found := what():
            return found
        time.sleep(0.05)
    raise AssertionError("it never came true")


def health(broker: BrokerProcess) -> Any:
    return httpx.get(f"{broker.http}/healthz", trust_env=False).json()


def owner(looker: Any) -> int:
    """Whose session the broker's id is; 0 where there is none."""
    stat = looker.exists(ID)
    return 0 if stat is None else int(stat.ephemeralOwner)


def address_of(looker: Any) -> tuple[str, int]:
    """Where the broker is, as a client of 0.7 finds out."""
    _, host, port = looker.get(ID)[0].decode().split(":")
    return host, int(port)


def produce(address: tuple[str, int], topic: str, value: bytes) -> None:
    """One message to partition 0, in the format of 0.7; nothing is answered."""
    message = struct.pack(">iBBI", len(value) + 6, 1, 0, zlib.crc32(value)) + value
    name = topic.encode()
    body = struct.pack(">hh", 0, len(name)) + name + struct.pack(">ii", 0, len(message)) + message
    with socket.create_connection(address) as connection:
        connection.sendall(struct.pack(">i", len(body)) + body)


def test_a_client_of_0_7_finds_the_broker_and_learns_the_topic_that_it_creates(
    broker: BrokerProcess, looker: Any
) -> None:
    eventually(lambda: health(broker) == {"status": "ok", "zookeeper": "registered"})
    address = address_of(looker)
    assert address == broker.kafka07_address(1)
    heard: list[list[str]] = []
    looker.ensure_path("/brokers/topics")
    looker.ChildrenWatch("/brokers/topics", lambda names: heard.append(sorted(names)))
    produce(address, "news", b"first")
    eventually(lambda: looker.exists("/brokers/topics/news/1"))
    assert looker.get("/brokers/topics/news/1")[0] == b"3", "the broker's default number of partitions"
    eventually(lambda: "news" in heard[-1])
    url = f"{broker.http}/api/v1/topics/news/partitions/0/records?offset=0"
    assert [r["value"] for r in httpx.get(url, trust_env=False).json()["records"]] == ["first"]


def test_a_broker_that_was_killed_registers_again_while_its_old_nodes_are_there(
    broker: BrokerProcess, looker: Any
) -> None:
    eventually(lambda: owner(looker))
    produce(address_of(looker), "kept", b"x")
    eventually(lambda: looker.exists("/brokers/topics/kept/1"))
    before, left = owner(looker), looker.get(ID)[0]
    broker.kill()
    assert owner(looker) == before, "ZooKeeper has not noticed yet"
    broker.start()
    eventually(lambda: owner(looker) not in (0, before))
    assert looker.get(ID)[0] != left, "another creator"
    assert address_of(looker) == broker.kafka07_address(1)
    after = owner(looker)
    eventually(lambda: looker.get("/brokers/topics/kept/1")[1].ephemeralOwner == after)
    time.sleep(5)
    assert owner(looker) == after, "the end of the old session took nothing with it"
    assert looker.exists("/brokers/topics/kept/1")


def test_a_broker_that_froze_longer_than_its_session_registers_again(
    broker: BrokerProcess, looker: Any
) -> None:
    eventually(lambda: owner(looker))
    before = owner(looker)
    os.kill(broker.pid, signal.SIGSTOP)
    try:
        eventually(lambda: owner(looker) == 0)
    finally:
        os.kill(broker.pid, signal.SIGCONT)
    eventually(lambda: owner(looker) not in (0, before))
    eventually(lambda: health(broker).get("zookeeper") == "registered")
    metrics = httpx.get(f"{broker.http}/metrics", trust_env=False).text
    assert "\nsluice_zookeeper_lost_sessions_total 1.0\n" in metrics
    assert "\nsluice_zookeeper_registered 1.0\n" in metrics


def test_the_broker_serves_and_says_so_while_zookeeper_is_away(
    broker: BrokerProcess, zookeeper: ZooKeeperProcess, looker: Any
) -> None:
    eventually(lambda: owner(looker))
    address = address_of(looker)
    zookeeper.kill()
    try:
        eventually(lambda: health(broker) == {"status": "ok", "zookeeper": "away"})
        produce(address, "meanwhile", b"x")
        eventually(
            lambda: httpx.get(f"{broker.http}/api/v1/topics/meanwhile", trust_env=False).status_code == 200
        )
        broker.stop()
        broker.start()
        assert "works without it" in eventually(
            lambda: (log := broker.read_log()) and "works without it" in log and log
        )
    finally:
        zookeeper.start()
    eventually(lambda: health(broker) == {"status": "ok", "zookeeper": "registered"})
    eventually(lambda: looker.connected and looker.exists("/brokers/topics/meanwhile/1"))


def test_consumers_of_0_7_are_shown_among_the_groups(broker: BrokerProcess, looker: Any) -> None:
    eventually(lambda: looker.connected)
    looker.create("/consumers/seven/offsets/news/1-0", b"15", makepath=True)
    looker.create("/consumers/seven/owners/news/1-0", b"seven_1-0", ephemeral=True, makepath=True)
    looker.create("/consumers/seven/ids/seven_1", b'{"news": 1}', ephemeral=True, makepath=True)
    url = f"{broker.http}/api/v1/groups/seven"
    # The member comes last: the broker may read the nodes in between.
    eventually(lambda: httpx.get(url, trust_env=False).json().get("members"))
    group = httpx.get(url, trust_env=False).json()
    assert (group["type"], group["state"]) == ("kafka07-zookeeper", "Stable")
    assert group["members"][0]["partitions"] == [{"topic": "news", "partition": 0}]
    offsets = httpx.get(f"{url}/offsets", trust_env=False).json()
    assert offsets["byte_offsets"] == [{"topic": "news", "broker_id": 1, "partition": 0, "byte_offset": 15}]


def test_a_stop_takes_the_broker_out_at_once(broker: BrokerProcess, looker: Any) -> None:
    eventually(lambda: looker.connected and owner(looker))
    assert broker.stop() == 0
    assert owner(looker) == 0
    broker.start()


def test_zookeeper_without_a_listener_of_0_7_is_refused_at_the_start(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "app",
        "serve",
        "--data-dir",
        str(tmp_path),
        "--zookeeper",
        "127.0.0.1:1",
    ]
    command += ["--listener", "http://127.0.0.1:0", "--listener", "kafka://127.0.0.1:0"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30)
    assert done.returncode != 0
    assert "--listener kafka07://" in done.stderr and "Traceback" not in done.stderr
