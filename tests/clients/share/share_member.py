"""A member of a share group as a test sees it: a process of some client, and all that it said.

It says {"polled": how many}, {"read": [partition, offset, value, delivery count]}, {"acknowledged": partition} and
{"refused": why}. Its mode says what it does with records: "implicit" accepts them by the next poll, "accept" and
"reject" each by itself, "release" the first delivery and accepts the second, "renew" the lock and accepts after it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from tests.broker_process import ROOT, BrokerProcess
from tests.clients.driver import CALL_SECONDS
from tests.conftest import GO_CLIENTS
from tests.peers.kafka import java

HERE = Path(__file__).parent
#: The name of a Java client → the set of jars in tests/peers/fetch.py that it runs on.
JAVA = {"java-4.1": "kafka-4.1", "java-4.4": "clients-4.4"}
KINDS = ("confluent-kafka", "franz-go", *JAVA)
INSTALLED_AS = {"franz-go": "go clients"} | dict.fromkeys(JAVA, "kafka")
#: Those that renew locks, and that know a strict limit of records (since Kafka 4.2).
NEWEST = ("franz-go", "java-4.4")


class Read(NamedTuple):
    """One record that a member got."""

    partition: int
    offset: int
    value: str
    deliveries: int


class ShareMember:
    """One member in a process of its own. `max_records` is a strict limit of one poll."""

    def __init__(
        self,
        kind: str,
        broker: BrokerProcess,
        group: str,
        topic: str,
        mode: str = "accept",
        max_records: int | None = None,
    ) -> None:
        self.kind = kind
        self.reads: list[Read] = []
        self.polled: list[int] = []
        self.refused: list[str] = []
        self.acknowledged = 0
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "MODE": mode}
        if max_records is not None:
            environment["MAX_RECORDS"] = str(max_records)
        self._process = subprocess.Popen(
            [*_program(kind, broker.kafka), group, topic],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            cwd=ROOT,
        )
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.endswith(b"\n"):  # else it was killed in the middle of a line
                self._note(json.loads(line))

    def _note(self, event: dict[str, Any]) -> None:
        if "read" in event:
            self.reads.append(Read(*event["read"]))
        elif "polled" in event:
            self.polled.append(event["polled"])
        elif "acknowledged" in event:
            self.acknowledged += 1
        elif "refused" in event:
            self.refused.append(event["refused"])

    def wait_for(self, what: Callable[[ShareMember], bool], seconds: float = 2 * CALL_SECONDS) -> None:
        """Wait until something is true of this member."""
        deadline = time.monotonic() + seconds
        while not what(self):
            assert self._process.poll() is None, f"the {self.kind} member has stopped by itself"
            assert time.monotonic() < deadline, (
                f"{self.kind}: {len(self.reads)} reads, refused {self.refused}"
            )
            time.sleep(0.02)

    def leave(self) -> None:
        """Ask it to leave, and wait until it has left."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill it; its connection ends with it. A member that has ended already stays so."""
        if self._process.poll() is None:
            self._end(signal.SIGKILL)

    def pause(self) -> None:
        """Let it stand still (SIGSTOP): its connection stays open."""
        self._process.send_signal(signal.SIGSTOP)

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


def _program(kind: str, bootstrap: str) -> list[str]:
    if kind in JAVA:
        return java(JAVA[kind], "JavaShareMember", bootstrap, heap="64m", level="off")
    if kind == "franz-go":
        return [str(GO_CLIENTS), "share", kind, bootstrap]
    return [sys.executable, str(HERE / "python_share_member.py"), bootstrap]
