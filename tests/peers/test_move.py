"""`sluice move`: the cut-over of docs/guides/move.md, from a Sluice in use to a real Kafka, tried step by step."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition

from tests.broker_process import ROOT, BrokerProcess
from tests.peers.kafka import KafkaProcess
from tests.peers.reading import Cluster
from tests.ports import free_ports

SECONDS = 60.0
ORDERS, LEDGER, TABLE, STAMPED = "move-orders", "move-ledger", "move-table", "move-stamped"
PARTITIONS, BEFORE = 3, 3_000
GROUP, MANAGED = "move-readers", "move-managed"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
KEYED = {"records": [{"value": "once", "partition": 0}]}


class Ran(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        """Its JSON."""
        return json.loads(self.out)


class Moving:
    """A source, the target and the working directory of the move between them."""

    def __init__(self, directory: Path, source: BrokerProcess, target: KafkaProcess) -> None:
        self.directory = directory
        self.source = source
        self.target = target
        self.gateway_dir = directory / "gateway"
        self.ours, self.theirs = Cluster(source.kafka), Cluster(target.bootstrap)
        # What the test has seen of the source before it stopped.
        self.batch: dict[str, Any] = {}
        self.keyed: dict[str, Any] = {}
        self.values: dict[str, dict[int, list[bytes | None]]] = {}

    def command(self, name: str, *options: str) -> list[str]:
        """The command line of `sluice move NAME`."""
        work = ("--to", self.target.bootstrap, "--work-dir", str(self.directory / "move"))
        source = () if name in ("consumers", "finish") else ("--from", self.source.kafka)
        return [sys.executable, "-m", "app", "move", name, *work, *source, *options]

    def run(self, name: str, *options: str) -> Ran:
        """Run it to its end."""
        done = subprocess.run(
            self.command(name, *options),
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        return Ran(done.returncode, done.stdout, done.stderr)

    def done(self, name: str, *options: str) -> Ran:
        """The same; it must succeed."""
        ran = self.run(name, *options)
        assert ran.code == 0, ran
        return ran

    def freeze(self, what: str = "freeze") -> None:
        """`sluice move freeze` and `thaw`."""
        command = [sys.executable, "-m", "app", "move", what, "--url", self.source.http]
        assert (
            subprocess.run(command, cwd=ROOT, capture_output=True, timeout=SECONDS, check=False).returncode
            == 0
        )

    def http(self, method: str, path: str, base: str = "", **options: Any) -> httpx.Response:
        """A request below /api/v1 of the source, or of the gateway at `base`."""
        url = f"{base or self.source.http}/api/v1{path}"
        return httpx.request(method, url, timeout=30, trust_env=False, **options)


def write_orders(cluster: Cluster, first: int, count: int) -> None:
    """Records in batches of all codecs, with keys, headers, times; some have no value."""
    for part, codec in enumerate(CODECS):
        producer = Producer(
            {"bootstrap.servers": cluster.bootstrap, "compression.type": codec, "linger.ms": 5}
        )
        for n in range(first + part, first + count, len(CODECS)):
            producer.produce(
                ORDERS, b"order %d" % n if n % 10 else None, b"k%d" % (n % 17), n % PARTITIONS,
                timestamp=1_600_000_000_000 + n, headers=[("n", b"%d" % n)],
            )  # fmt: skip
        assert producer.flush(SECONDS) == 0


def write_transactions(cluster: Cluster) -> None:
    """Transactions that were committed and aborted, in turn."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "move-ledger"})
    producer.init_transactions(SECONDS)
    for n in range(6):
        producer.begin_transaction()
        for i in range(4):
            producer.produce(LEDGER, b"%d.%d" % (n, i), partition=0)
        producer.flush(SECONDS)
        producer.abort_transaction(SECONDS) if n % 2 else producer.commit_transaction(SECONDS)


def wait_for(check: Any, what: str) -> None:
    """Wait until a check holds."""
    deadline = time.monotonic() + SECONDS
    while not check():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def fill(moving: Moving) -> None:
    """What a Sluice in use has: topics of all kinds, a group, a managed consumer, a keyed write."""
    ours = moving.ours
    ours.create(ORDERS, PARTITIONS, retention_ms="999999999999")
    ours.create(LEDGER, 1)
    ours.create(STAMPED, 1, message_timestamp_type="LogAppendTime")
    ours.create(TABLE, 1, cleanup_policy="compact", segment_bytes="4096", min_cleanable_dirty_ratio="0.01")
    write_orders(ours, 0, BEFORE)
    write_transactions(ours)
    ours.write(STAMPED, ({"value": b"%d" % n} for n in range(50)))
    for n in range(40):
        ours.write(TABLE, ({"key": b"k%d" % (i % 7), "value": b"%d.%d" % (n, i)} for i in range(20)))
    wait_for(lambda: len(values(ours, TABLE)[0]) < 700, "the source does not compact")
    # Gaps: the first records of one partition are deleted.
    assert moving.http(
        "POST", f"/topics/{ORDERS}:truncate", json={"partitions": [{"partition": 1, "before_offset": 100}]}
    ).is_success
    keyed = moving.http(
        "POST", f"/topics/{LEDGER}/records", json=KEYED, headers={"Idempotency-Key": "move-1"}
    )
    assert keyed.is_success
    moving.keyed = keyed.json()
    ours.commit(GROUP, ORDERS, {0: 500, 1: 700, 2: 0})
    made = moving.http(
        "POST",
        f"/groups/{MANAGED}/consumers",
        json={"name": "c", "topics": [LEDGER], "start": "earliest"},
    )
    assert made.is_success, made.text
    poll = f"/groups/{MANAGED}/consumers/c:poll"
    first = moving.http("POST", poll, json={"limit": 3, "wait_ms": 20_000}).json()
    moving.batch = moving.http("POST", poll, json={"limit": 3, "ack": first["ack"], "wait_ms": 5_000}).json()
    assert len(moving.batch["records"]) == 3


def copy_under_kills(moving: Moving) -> None:
    """`copy --follow`, killed twice while the source takes records, then left to follow and stopped."""
    options = ("--follow", "--topics", "move-*", "--skip-config", "segment.bytes")
    for turn in range(2):
        with (moving.directory / "copy.log").open("ab") as log:
            copying = subprocess.Popen(moving.command("copy", *options), cwd=ROOT, stdout=log, stderr=log)
        seen = turn * 500
        wait_for(lambda seen=seen: moving.theirs.count(ORDERS) > seen, "nothing is copied")  # type: ignore[misc]
        write_orders(moving.ours, BEFORE + turn * 500, 500)
        copying.send_signal(signal.SIGKILL)
        copying.wait()
    with (moving.directory / "copy.log").open("ab") as log:
        copying = subprocess.Popen(moving.command("copy", *options), cwd=ROOT, stdout=log, stderr=log)
    wait_for(lambda: moving.theirs.count(ORDERS) == moving.ours.count(ORDERS), "the copy does not follow")
    copying.send_signal(signal.SIGTERM)
    assert copying.wait(SECONDS) == 0


def messages(cluster: Cluster, topic: str) -> dict[int, list[Message]]:
    """The committed records of a topic, by partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "move-reading",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    found: dict[int, list[Message]] = {number: [] for number in range(len(cluster.ends(topic)))}
    left = set(found)
    deadline = time.monotonic() + SECONDS
    try:
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in found])
        while left:
            assert time.monotonic() < deadline, f"{topic}: {left}"
            for message in consumer.consume(1000, 0.1):
                if message.error() is None:
                    found[message.partition()].append(message)
                else:
                    assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                    left.discard(message.partition())
    finally:
        consumer.close()
    return found


def values(cluster: Cluster, topic: str) -> dict[int, list[bytes | None]]:
    """The committed values of a topic, by partition."""
    return {number: [one.value() for one in some] for number, some in messages(cluster, topic).items()}


@pytest.fixture(scope="module")
def moved(tmp_path_factory: pytest.TempPathFactory, kafka: KafkaProcess) -> Iterator[Moving]:
    """Steps 1 to 4 of the cut-over; the source is stopped in the end."""
    directory = tmp_path_factory.mktemp("move")
    environment = {"SLUICE_GROUP_INITIAL_REBALANCE_DELAY_MS": "0", "SLUICE_BACKGROUND_INTERVAL_MS": "200"}
    source = BrokerProcess(directory / "source", environment=environment).start()
    try:
        moving = Moving(directory, source, kafka)
        fill(moving)
        copy_under_kills(moving)
        moving.freeze()
        refused = moving.http("POST", f"/topics/{ORDERS}/records", json={"records": [{"value": "late"}]})
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
        moving.done("copy", "--topics", "move-*")
        different = moving.run("verify", "--json", "--topics", "move-*")
        assert (
            different.code == 1
            and different.data["groups"]
            and all(p["equal"] for p in different.data["partitions"])
        )
        dry = moving.done("groups", "--json", "--dry-run", "--topics", "move-*")
        assert dry.data["committed"] == 0 and {one["group"] for one in dry.data["groups"]} == {GROUP, MANAGED}
        moving.done("groups", "--topics", "move-*")
        moving.done("verify", "--topics", "move-*")
        moving.values = {topic: values(moving.ours, topic) for topic in (ORDERS, LEDGER, TABLE, STAMPED)}
        assert source.stop() == 0
        moving.done("groups", "--data-dir", str(source.data_dir))
        moving.done("consumers", "--data-dir", str(source.data_dir), "--gateway-dir", str(moving.gateway_dir))
        yield moving
    finally:
        source.kill()


def test_the_records_are_those_of_the_source_in_their_order(moved: Moving) -> None:
    for topic, wanted in moved.values.items():
        found = values(moved.theirs, topic)
        if topic == TABLE:
            # The source may have compacted more since; what it has is there, in its order.
            rest = iter(found[0])
            assert all(value in rest for value in wanted[0])
        else:
            assert found == wanted, topic
    # Aborted records, and those that compaction has removed, are not there.
    assert len(moved.values[LEDGER][0]) == 13 and len(moved.values[TABLE][0]) < 800


def test_times_and_headers_are_those_of_the_source(moved: Moving) -> None:
    for one in messages(moved.theirs, ORDERS)[0]:
        n = int(dict(one.headers() or ())["n"])
        assert one.timestamp() == (1, 1_600_000_000_000 + n) and one.key() == b"k%d" % (n % 17)


def test_a_group_continues_with_the_record_that_it_had_not_read(moved: Moving) -> None:
    consumer = Consumer(
        {"bootstrap.servers": moved.theirs.bootstrap, "group.id": GROUP, "auto.offset.reset": "error"}
    )
    # 100 records of partition 1 were deleted before the move.
    assert moved.theirs.committed(GROUP, ORDERS) == {0: 500, 1: 600, 2: 0}
    consumer.subscribe([ORDERS])
    firsts: dict[int, bytes | None] = {}
    deadline = time.monotonic() + SECONDS
    while len(firsts) < PARTITIONS and time.monotonic() < deadline:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            firsts.setdefault(message.partition(), message.value())
    consumer.close()
    assert firsts == {
        0: moved.values[ORDERS][0][500],
        1: moved.values[ORDERS][1][600],
        2: moved.values[ORDERS][2][0],
    }


def test_settings_are_held_back_until_the_move_is_finished(moved: Moving) -> None:
    held = moved.theirs.settings(TABLE)
    assert (held["cleanup.policy"], held["retention.ms"]) == ("delete", "-1")
    moved.done("finish")
    finished = moved.theirs.settings(TABLE)
    assert (finished["cleanup.policy"], moved.theirs.settings(ORDERS)["retention.ms"]) == (
        "compact",
        "999999999999",
    )
    assert moved.theirs.settings(STAMPED)["message.timestamp.type"] == "LogAppendTime"


def test_verify_cannot_tell_without_the_source(moved: Moving) -> None:
    ran = moved.run("verify")
    assert ran.code == 2 and "cannot be reached" in ran.err


class Gateway:
    """`sluice serve --upstream` over the target."""

    def __init__(self, moving: Moving) -> None:
        (port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{port}"
        self.log = moving.directory / "gateway.log"
        command = [
            sys.executable, "-m", "app", "serve", "--upstream", moving.target.bootstrap, "--data-dir",
            str(moving.gateway_dir), "--listener", self.url,
        ]  # fmt: skip
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command, cwd=ROOT, stdout=log, stderr=log, env={**os.environ, "PYTHONUNBUFFERED": "1"}
            )
        wait_for(self._ready, "the gateway is not ready")

    def _ready(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        try:
            return httpx.get(f"{self.url}/readyz", trust_env=False).status_code == 200
        except httpx.TransportError:
            return False

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(SECONDS)


@pytest.fixture(scope="module")
def gateway(moved: Moving) -> Iterator[Gateway]:
    """Step 5."""
    started = Gateway(moved)
    yield started
    started.stop()


def test_a_managed_consumer_continues_with_its_token(moved: Moving, gateway: Gateway) -> None:
    poll = f"/groups/{MANAGED}/consumers/c:poll"
    again = moved.http("POST", poll, gateway.url, json={"limit": 3, "wait_ms": 20_000}).json()
    assert again.get("ack"), again
    assert (again["ack"], again["redelivered"]) == (moved.batch["ack"], True)
    assert [one["value"] for one in again["records"]] == [one["value"] for one in moved.batch["records"]]
    rest = moved.http(
        "POST", poll, gateway.url, json={"limit": 100, "ack": again["ack"], "wait_ms": 20_000}
    ).json()
    assert len(rest["records"]) == 13 - 6
    acked = moved.http("POST", f"/groups/{MANAGED}/consumers/c:ack", gateway.url, json={"ack": rest["ack"]})
    assert acked.is_success and moved.theirs.committed(MANAGED, LEDGER) == {0: 13}


def test_a_keyed_write_is_answered_from_the_store_with_its_new_offset(
    moved: Moving, gateway: Gateway
) -> None:
    headers = {"Idempotency-Key": "move-1"}
    again = moved.http("POST", f"/topics/{LEDGER}/records", gateway.url, json=KEYED, headers=headers)
    assert again.is_success and again.headers["idempotent-replayed"] == "true"
    (record,) = again.json()["records"]
    (before,) = moved.keyed["records"]
    # Six markers and three aborted transactions of four records were left out.
    assert (before["offset"], record["offset"]) == (30, 12)
    assert values(moved.theirs, LEDGER)[0][12] == b"once"
