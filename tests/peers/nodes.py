"""A real Apache Kafka of three nodes in KRaft mode, each broker and controller at once, in a process of its own.

Nodes can be killed, stopped (SIGSTOP) and started again one by one: what a test of leaders, in-sync replicas and
`min.insync.replicas` needs. All three together take about 1 GB of memory and start in one go.
"""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

from tests.peers.kafka import CLUSTER_ID, SETTINGS, java
from tests.ports import free_ports

START_SECONDS = 120.0
# A leader that is lost is noticed after the session; followers that are too slow leave the ISR after the lag.
QUICK = {
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.min.isr": "2",
    "default.replication.factor": "3",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "3000",
    "controller.quorum.election.timeout.ms": "500",
    "controller.quorum.fetch.timeout.ms": "1500",
    "controlled.shutdown.enable": "false",
    "unclean.leader.election.enable": "false",
}


class Nodes:
    """Three nodes over one directory. `bootstrap` names all of them."""

    def __init__(self, directory: Path, *, count: int = 3, release: str = "kafka-4.1") -> None:
        self.directory = directory
        self._release = release
        numbers = range(1, count + 1)
        ports = free_ports(2 * count)
        self.ports = dict(zip(numbers, ports[:count], strict=True))
        self._controllers = dict(zip(numbers, ports[count:], strict=True))
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        # How long the log of each node was at its start.
        self._seen: dict[int, int] = {}

    @property
    def bootstrap(self) -> str:
        """`host:port` of each node."""
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values())

    @property
    def up(self) -> list[int]:
        """The ids of the nodes that run."""
        return sorted(self._processes)

    def start(self) -> Nodes:
        """Start all nodes and wait until each serves. Raises AssertionError with its log otherwise."""
        for number in self.ports:
            self._launch(number)
        for number in self.ports:
            self._wait(number)
        return self

    def restart(self, number: int) -> None:
        """Start a node again, and wait until it serves."""
        self._launch(number)
        self._wait(number)

    def log(self, number: int) -> Path:
        """Return the file with all that a node printed."""
        return self.directory / f"node-{number}" / "kafka.log"

    def _launch(self, number: int) -> None:
        assert number not in self._processes
        directory = self.directory / f"node-{number}"
        directory.mkdir(parents=True, exist_ok=True)
        file = directory / "server.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in self._properties(number).items()))
        command = java(
            self._release, "OneNode", CLUSTER_ID, str(file), heap="256m", level="info",
        )  # fmt: skip
        # What this start prints begins here.
        self._seen[number] = self._size(number)
        with self.log(number).open("ab") as log:
            self._processes[number] = subprocess.Popen(
                command, cwd=directory, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT
            )

    def _size(self, number: int) -> int:
        return self.log(number).stat().st_size if self.log(number).exists() else 0

    def _wait(self, number: int) -> None:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self._processes[number].poll() is None:
            with self.log(number).open("rb") as log:
                log.seek(self._seen[number])
                if b"Kafka Server started" in log.read():
                    return
            time.sleep(0.05)
        said = self.log(number).read_text(errors="replace")[-8000:]
        self.close()
        raise AssertionError(f"node {number} of Kafka does not start:\n{said}")

    def _properties(self, number: int) -> dict[str, str]:
        mine = f"PLAINTEXT://127.0.0.1:{self.ports[number]}"
        return {
            **SETTINGS,
            **QUICK,
            "node.id": str(number),
            "listeners": f"{mine},CONTROLLER://127.0.0.1:{self._controllers[number]}",
            "advertised.listeners": mine,
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "controller.quorum.voters": ",".join(
                f"{n}@127.0.0.1:{port}" for n, port in self._controllers.items()
            ),
            "log.dirs": str(self.directory / f"node-{number}" / "data"),
        }

    def kill(self, number: int) -> None:
        """SIGKILL; its data stay."""
        process = self._processes.pop(number)
        process.kill()
        process.wait()
        assert process.stdin is not None
        process.stdin.close()

    def pause(self, number: int) -> None:
        """SIGSTOP: the node stands still, as on a machine that is suspended."""
        self._processes[number].send_signal(signal.SIGSTOP)

    def resume(self, number: int) -> None:
        """SIGCONT."""
        self._processes[number].send_signal(signal.SIGCONT)

    def close(self) -> None:
        """End all nodes."""
        for number in list(self._processes):
            self.kill(number)
