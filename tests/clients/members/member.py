"""A member process as a test sees it: started, asked to leave or killed, and all that it said."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.broker_process import ROOT, BrokerProcess
from tests.clients.driver import CALL_SECONDS
from tests.clients.drivers.java_client import JAVA_SETS
from tests.conftest import GO_CLIENTS, NODE_MODULES, kafka_node_path, node_path, old_kafka_python_path
from tests.peers.kafka import java

HERE = Path(__file__).parent
KINDS = ("confluent-kafka", "kafka-python", "aiokafka", "kafkajs", "sarama", "franz-go", "java-4.1", "curl")
# It says that its metadata is of version 1 and leaves out what version 1 has. librdkafka and kafka-python cannot
# read (https://github.com/segmentio/kafka-go/issues/1156): it shares a group with itself, sarama and a few others.
KAFKA_GO = "kafka-go"
# Releases of kafka-python with the version of the broker that they are told, and kafka-node.
OLD_KAFKA_PYTHON = {
    f"kafka-python-{release}-as-{api_version}": (release, api_version)
    for release, api_version in (("1.4.7", "0.9"), ("2.0.2", "0.10"), ("2.0.2", "0.11.0"))
}
OLD_KINDS = (*OLD_KAFKA_PYTHON, "kafka-node", "java-3.9", "java-2.8")
# What of these the test command installs by itself.
INSTALLED_AS = (
    {"kafkajs": "kafkajs", "curl": "curl", "kafka-node": "kafka-node"}
    | dict.fromkeys(OLD_KAFKA_PYTHON, "old kafka-python")
    | dict.fromkeys(("sarama", "franz-go", KAFKA_GO), "go clients")
    | dict.fromkeys(JAVA_SETS, "kafka")
)

# Members to which the broker can assign (KIP-848).
CONSUMER_KINDS = ("confluent-kafka", "java-4.1", "java-3.9", "franz-go")
# Members that copy records in transactions, with the generation of the group (KIP-447).
COPIERS = ("confluent-kafka", "kafka-python", "franz-go", "java-3.9", "java-4.1")


class Member:
    """One group member of some client, in a process of its own.

    `strategy` is its assignor by Kafka's name. Further variables make it a copier of `COPIERS`, which may have none.
    With `protocol` "consumer" the broker assigns (KIP-848): `CONSUMER_KINDS`. `instance` makes it static.
    """

    def __init__(
        self,
        kind: str,
        broker: BrokerProcess,
        group: str,
        topic: str,
        strategy: str = "roundrobin",
        copier: Mapping[str, str] | None = None,
        *,
        protocol: str = "classic",
        instance: str = "",
    ) -> None:
        self.kind = kind
        self.assigned: list[int] | None = None
        self.reads: list[tuple[int, int, str]] = []
        # Everything it said, with the time, for the report of a test that fails.
        self.events: list[tuple[float, dict[str, Any]]] = []
        shadow = old_kafka_python_path(OLD_KAFKA_PYTHON[kind][0]) if kind in OLD_KAFKA_PYTHON else None
        environment = {**os.environ, "PYTHONPATH": shadow or str(ROOT), "NODE_PATH": str(NODE_MODULES)}
        environment |= {"STRATEGY": strategy, "PROTOCOL": protocol, "INSTANCE": instance}
        environment |= copier or {}
        program = _program if copier is None else _copier
        self._process = subprocess.Popen(
            [*program(kind, broker), group, topic],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            cwd=ROOT,
        )
        self.name = f"{kind} {self._process.pid}"
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            try:
                self._note(json.loads(line))
            except ValueError:
                if line.endswith(b"\n"):  # else it was killed in the middle of a line
                    raise

    def _note(self, event: dict[str, Any]) -> None:
        self.events.append((time.monotonic(), event))
        if "assigned" in event:
            self.assigned = event["assigned"]
        elif "read" in event:
            partition, offset, value = event["read"]
            self.reads.append((partition, offset, value))

    def story(self, partition: int) -> list[tuple[float, str]]:
        """What it said about one partition, and which partitions it was given, each with its time."""
        told: list[tuple[float, str]] = []
        name = self.name
        for moment, event in list(self.events):
            if "read" in event and event["read"][0] == partition:
                told.append((moment, f"{name} read {event['read'][1]}"))
            elif str(partition) in event.get("committed", {}):
                told.append((moment, f"{name} committed {event['committed'][str(partition)]}"))
            elif "assigned" in event or "refused" in event:
                told.append((moment, f"{name} {event}"))
        return told

    @property
    def running(self) -> bool:
        """Whether the process is there."""
        return self._process.poll() is None

    def wait_for(self, what: Callable[[Member], bool], seconds: float = CALL_SECONDS) -> None:
        """Wait until something is true of this member."""
        deadline = time.monotonic() + seconds
        while not what(self):
            assert self.running, f"the {self.kind} member has stopped by itself"
            assert time.monotonic() < deadline, (
                f"{self.kind}: assigned {self.assigned}, {len(self.reads)} reads"
            )
            time.sleep(0.02)

    def leave(self) -> None:
        """Ask it to leave, and wait until it has left."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill it; the group finds out by itself."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """Let it stand still (SIGSTOP), as a machine that is suspended."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it continue."""
        self._process.send_signal(signal.SIGCONT)

    def _end(self, how: signal.Signals) -> None:
        self._process.send_signal(how)
        try:
            self._process.wait(CALL_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise AssertionError(f"the {self.kind} member does not leave") from None
        finally:
            self._thread.join(5)
            assert self._process.stdout is not None
            self._process.stdout.close()


def _copier(kind: str, broker: BrokerProcess) -> list[str]:
    if kind in JAVA_SETS:
        return java(JAVA_SETS[kind], "JavaCopier", broker.kafka, heap="64m", level="off")
    if kind == "franz-go":
        return [str(GO_CLIENTS), "copier", kind, broker.kafka]
    return [sys.executable, str(HERE / "python_copier.py"), kind, broker.kafka]


def _program(kind: str, broker: BrokerProcess) -> list[str]:
    if kind == "curl":
        bash = shutil.which("bash")
        assert bash is not None
        return [bash, str(HERE / "curl_member.sh"), broker.http]
    if kind == "kafkajs":
        node = node_path()
        assert node is not None
        return [node, str(HERE / "kafka_js_member.js"), broker.kafka]
    if kind in ("sarama", "franz-go", KAFKA_GO):
        return [str(GO_CLIENTS), "member", kind, broker.kafka]
    if kind == "kafka-node":
        node = kafka_node_path()
        assert node is not None
        return [node, str(HERE / "kafka_node_member.js"), broker.kafka]
    if kind in JAVA_SETS:
        return java(JAVA_SETS[kind], "JavaMember", broker.kafka, heap="64m", level="off")
    if kind in OLD_KAFKA_PYTHON:
        script = HERE / "old_kafka_python_member.py"
        return [sys.executable, str(script), broker.kafka, OLD_KAFKA_PYTHON[kind][1]]
    return [sys.executable, str(HERE / "python_member.py"), kind, broker.kafka]
