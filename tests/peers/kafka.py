"""A real Apache Kafka, one node in KRaft mode, as a child process; and Kafka's own tools in one long-lived JVM."""

from __future__ import annotations

import json
import queue
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.peers.fetch import PEERS, class_path
from tests.ports import free_ports

START_SECONDS = 90.0
TOOL_SECONDS = 30
CLUSTER_ID = "c2x1aWNlLXRlc3RzLXBlZQ"
_STARTED = re.compile(r"Kafka Server started|\[KafkaRaftServer nodeId=\d+\] Kafka Server started")
# A short life: compile less, collect with one thread, use what the JDK shares.
JVM = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Djava.awt.headless=true")
# What Kafka's own start scripts give a server or a tool (bin/kafka-run-class.sh of 4.1): for measuring.
SCRIPTS_JVM = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15",
    "-Djava.awt.headless=true",
)
# Mains.java runs the JVM's shutdown hooks of each tool.
OPEN = ("--add-opens", "java.base/java.lang=ALL-UNNAMED")
# One node keeps its own offsets and transactions, and no test waits for partitions that nothing uses.
SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "inter.broker.listener.name": "PLAINTEXT",
    "controller.listener.names": "CONTROLLER",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
}


def java(
    release: str,
    *arguments: str,
    heap: str = "256m",
    level: str = "warn",
    jvm: Sequence[str] = JVM,
) -> list[str]:
    """Return a command that runs Java over a set of `fetch.SETS`; `level` is what its log says at least."""
    program = shutil.which("java")
    assert program is not None
    log = (f"-Dsluice.level={level}", "-Dlog4j2.disableJmx=true")
    return [program, *jvm, f"-Xmx{heap}", *log, "-cp", class_path(release), *arguments]


class KafkaProcess:
    """One node, broker and controller at once, over one directory; it is formatted at the first start.

    `settings` are lines of server.properties beside `SETTINGS`. `listeners` are names of more listeners, each
    `NAME:PROTOCOL` such as `SASL:SASL_PLAINTEXT`; their ports are in `ports`. The node cannot survive the process
    that started it.
    """

    def __init__(
        self,
        directory: Path,
        *,
        release: str = "kafka-4.1",
        settings: Mapping[str, str] | None = None,
        listeners: tuple[str, ...] = (),
        heap: str = "512m",
        jvm: Sequence[str] = JVM,
    ) -> None:
        self.directory = directory
        self.release = release
        self.log = directory / "kafka.log"
        self.logs = directory / "data"
        self._heap = heap
        self._jvm = jvm
        self._settings = dict(settings or {})
        self._protocols = dict(one.split(":") for one in ("PLAINTEXT:PLAINTEXT", *listeners))
        names = [*self._protocols, "CONTROLLER"]
        self.ports = dict(zip(names, free_ports(len(names)), strict=True))
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        """`host:port` of the plaintext listener."""
        return f"127.0.0.1:{self.ports['PLAINTEXT']}"

    @property
    def kafka(self) -> str:
        """The same, by the name that a BrokerProcess has for it."""
        return self.bootstrap

    @property
    def address(self) -> tuple[str, int]:
        """The same for a socket."""
        return ("127.0.0.1", self.ports["PLAINTEXT"])

    @property
    def controller(self) -> str:
        """`host:port` of the controller."""
        return f"127.0.0.1:{self.ports['CONTROLLER']}"

    @property
    def pid(self) -> int:
        """The process id of the running node."""
        assert self._process is not None, "the node is not running"
        return self._process.pid

    def start(self) -> KafkaProcess:
        """Start the node and wait until it says that it has; fails with its log otherwise."""
        assert self._process is None
        self.directory.mkdir(parents=True, exist_ok=True)
        file = self.directory / "server.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in self._properties().items()))
        node = ("OneNode", CLUSTER_ID, str(file))
        command = java(self.release, *node, heap=self._heap, level="info", jvm=self._jvm)
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command, cwd=self.directory, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT
            )
        seen = self.log.stat().st_size
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self._process.poll() is None:
            with self.log.open("rb") as log:
                log.seek(seen)
                if _STARTED.search(log.read().decode(errors="replace")):
                    return self
            time.sleep(0.05)
        self.kill()
        raise AssertionError(f"Kafka does not start:\n{self.read_log()[-8000:]}")

    def _properties(self) -> dict[str, str]:
        listeners = ",".join(f"{name}://127.0.0.1:{port}" for name, port in self.ports.items())
        protocols = {**self._protocols, "CONTROLLER": "PLAINTEXT"}
        return {
            **SETTINGS,
            "listeners": listeners,
            "advertised.listeners": listeners.rsplit(",", 1)[0],
            "listener.security.protocol.map": ",".join(f"{name}:{one}" for name, one in protocols.items()),
            "controller.quorum.voters": f"1@{self.controller}",
            "log.dirs": str(self.logs),
            **self._settings,
        }

    def kill(self) -> None:
        """End it at once; its data stay."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process = None

    def read_log(self) -> str:
        """All that the node printed so far."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""


class Said(NamedTuple):
    """What a tool answered: its exit status (−1: not ended in time) and its two outputs."""

    exit: int
    out: str
    err: str


class Tools:
    """Kafka's command-line tools, run by main class, one after another in one JVM.

    A tool starts in milliseconds where a JVM of its own takes seconds. It sees its own standard input and outputs;
    the clients of a tool that does not close them live on until `close`. `options` are those of the JVM.
    """

    def __init__(self, release: str = "kafka-4.1", *, options: Sequence[str] = ()) -> None:
        self._process = subprocess.Popen(
            java(release, *OPEN, *options, "Mains"), cwd=PEERS, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._lines: queue.Queue[bytes] = queue.Queue()
        self._reader = threading.Thread(target=self._read_lines, daemon=True)
        self._reader.start()

    def _read_lines(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(b"")

    def run(self, main: str, *arguments: str, text: str = "", seconds: int = TOOL_SECONDS) -> Said:
        """Run a main class with arguments and `text` on its standard input."""
        assert self._process.stdin is not None
        command = {"main": main, "arguments": arguments, "input": text, "seconds": seconds}
        self._process.stdin.write(json.dumps(command).encode() + b"\n")
        self._process.stdin.flush()
        # The JVM keeps the limit itself; 30 s beyond are for the tool's shutdown hooks.
        line = self._lines.get(timeout=seconds + 30)
        assert line, "the JVM of the tools has stopped"
        return Said(**json.loads(line))

    def close(self) -> None:
        """End the JVM; no tool survives."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.kill()
        self._process.wait()
        self._reader.join()
        self._process.stdin.close()
        self._process.stdout.close()
