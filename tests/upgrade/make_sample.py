"""Writes the data directory that the tests of upgrades open, with whatever release is at hand.

    python -m tests.upgrade.make_sample RELEASE_TREE TARGET.tar.gz [--kill]

`RELEASE_TREE` is a checkout of the release that is to write it. What it cannot do yet (groups, consumers,
idempotency keys, settings of the broker) is left out. One sample for each schema revision is in `samples/`, one of
them of a process that was killed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PER_CODEC = 20
START_SECONDS = 20.0
ONCE: dict[str, Any] = {
    "content": b'{"key": "once", "value": "once", "partition": 0}',
    "headers": {"Idempotency-Key": "pay-1", "Content-Type": "application/json"},
}


def value_of(codec: str, number: int) -> bytes:
    """The value of one record."""
    return f"{codec}-{number}-{'x' * 40}".encode()


def change_broker(kafka: str) -> None:
    """Change a setting of the broker at run time."""
    entry = ConfigEntry(
        "log.cleaner.delete.retention.ms", "123456", incremental_operation=AlterConfigOpType.SET
    )
    resource = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": kafka})
    (done,) = admin.incremental_alter_configs([resource]).values()
    try:
        done.result(20)
    except KafkaException as error:
        print("no settings of the broker:", error)


def write(http: httpx.Client, kafka: str) -> None:
    """Topics of both kinds and one that is deleted, records of every codec, commits, a batch that is outstanding."""

    def make(topic: str, partitions: int, **configs: str) -> None:
        body = {"partitions": partitions, "configs": configs}
        http.put(f"/topics/{topic}", json=body).raise_for_status()

    make("orders", 2, **{"segment.bytes": "2000", "retention.ms": "-1"})
    make("latest", 1, **{"cleanup.policy": "compact"})
    make("gone", 1)
    for codec in CODECS:
        producer = Producer(
            {
                "bootstrap.servers": kafka,
                "compression.type": codec,
                "enable.idempotence": True,
                "linger.ms": 50,
            }
        )
        for i in range(PER_CODEC):
            producer.produce(
                "orders",
                key=f"k{i % 7}",
                value=value_of(codec, i),
                headers=[("h", b"1")],
                timestamp=1_700_000_000_000 + i,
                partition=i % 2,
            )
        assert producer.flush(20) == 0
    for i in range(10):
        body = {"records": [{"key": f"k{i % 3}", "value": {"n": i}}]}
        http.post("/topics/latest/records", json=body).raise_for_status()
    http.delete("/topics/gone").raise_for_status()
    change_broker(kafka)
    consumer = Consumer({"bootstrap.servers": kafka, "group.id": "readers", "log_level": 0})
    try:
        offsets = [TopicPartition("orders", 0, 17, metadata="so far"), TopicPartition("orders", 1, 23)]
        consumer.commit(offsets=offsets, asynchronous=False)
    except KafkaException as error:
        print("no commits:", error)
    made = http.post(
        "/groups/watchers/consumers", json={"name": "one", "topics": ["orders"], "start": "earliest"}
    )
    if made.is_success:
        http.post(
            "/groups/watchers/consumers/one:poll", json={"limit": 5, "wait_ms": 6000}
        ).raise_for_status()
    http.post("/topics/orders/records", **ONCE).raise_for_status()
    made = http.put("/queues/mail", json={"topics": ["orders"], "start": "earliest"})
    if made.is_success:
        lease = http.post("/queues/mail:receive", json={"max": 4}).raise_for_status().json()
        said = {"accept": [lease["records"][0]["receipt"]]}
        http.post("/queues/mail:settle", json=said).raise_for_status()


def run(tree: Path, data: Path, *, kill: bool) -> None:
    """Start the release over an empty directory, write, and end it."""
    command: list[Any] = [sys.executable, "-m", "app", "serve", "--data-dir", data]
    for scheme in ("http", "kafka"):
        command += ["--listener", f"{scheme}://127.0.0.1:0"]
    process = subprocess.Popen(command, cwd=tree)
    try:
        until = time.monotonic() + START_SECONDS
        while not (data / "listeners.json").exists():
            assert time.monotonic() < until and process.poll() is None, "the release does not start"
            time.sleep(0.1)
        time.sleep(0.5)
        urls = {url.partition(":")[0]: url for url in json.loads((data / "listeners.json").read_text())}
        with httpx.Client(base_url=f"{urls['http']}/api/v1", timeout=30, trust_env=False) as http:
            write(http, urls["kafka"].removeprefix("kafka://"))
        time.sleep(0.5)
    finally:
        (process.kill if kill else process.terminate)()
        process.wait(30)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("tree", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--kill", action="store_true", help="end the process with SIGKILL")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        data = Path(directory) / "data"
        run(arguments.tree, data, kill=arguments.kill)
        for name in (".lock", "listeners.json"):
            (data / name).unlink(missing_ok=True)
        with tarfile.open(arguments.target, "w:gz") as archive:
            archive.add(data, arcname=".")


if __name__ == "__main__":
    main()
