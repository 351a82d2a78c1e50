"""The kill loop over commits.

Committers at both clients, by themselves and as members of groups, commit rising offsets as fast as they are
answered. The broker is killed with SIGKILL at random moments and started again on the same directory. Promised:

- a commit that was answered is there: what is found lies between the last answered and the last attempted;
- what is committed never decreases;
- members continue in their generation, none rejoins.
"""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import Any

import httpx

from tests.broker_process import BrokerProcess
from tests.clients.wire import Wire, batch, produce_request
from tests.contract.clients import ClientError, KafkaClient, Membership, NativeClient

TOPIC = "committed"
ENVIRONMENT = {"SLUICE_GROUP_INITIAL_REBALANCE_DELAY_MS": "50"}
# Commits that one committer makes between two kills, far more than there is time for.
MOST_PER_ROUND = 20_000
# What a client sees of a broker that dies under it.
GONE = (OSError, AssertionError, httpx.TransportError)


class Committer:
    """One committer with a group of its own; `run` is its thread."""

    def __init__(self, broker: BrokerProcess, kind: type[Any], name: str, *, as_member: bool) -> None:
        self.group = f"{name}-{kind.name}"
        self.answered = 0
        self.attempted = 0
        self.refusals: list[str] = []
        self.member: Membership | None = None
        self._broker = broker
        self._kind = kind
        self._client: Any = None
        if as_member:
            self.member = self._open().join(self.group, [TOPIC])

    def _open(self) -> Any:
        if self._client is None:
            self._client = self._kind(self._broker)
        return self._client

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def run(self, stop: threading.Event) -> None:
        """Commit until told to stop, or until the broker has ended."""
        while not stop.is_set():
            try:
                client = self._open()
                if self.member is not None and self.attempted % 50 == 0:
                    client.heartbeat(self.member)
                self.attempted += 1
                client.commit(self.group, TOPIC, 0, self.attempted, self.member)
                self.answered = self.attempted
            except ClientError as refused:
                self.refusals.append(str(refused))
                return
            except GONE:
                self.close()
                return

    def check(self) -> int:
        """What is committed now; raises AssertionError when a promise is broken."""
        client = self._open()
        found = client.committed(self.group, TOPIC, 0) or 0
        assert self.refusals == [], f"{self.group}: {self.refusals}"
        assert self.answered <= found <= self.attempted, (
            f"{self.group}: {found} is committed, {self.answered} was answered, {self.attempted} attempted"
        )
        if self.member is not None:
            client.heartbeat(self.member)  # ILLEGAL_GENERATION or UNKNOWN_MEMBER_ID would be a ClientError
        self.answered = self.attempted = found
        return int(found)


def run(data_dir: Path, rounds: int, seed: int, longest: float = 1.5) -> int:
    """Run that number of kills; return the number of commits at the end. Raises when a promise is broken."""
    chance = random.Random(seed)
    broker = BrokerProcess(data_dir, environment=ENVIRONMENT)
    broker.start()
    try:
        setup = KafkaClient(broker)
        setup.create_topic(TOPIC)
        # What lies beyond the end of the log at an unclean start is cut back to it: no client can have read it.
        with Wire(broker.kafka_address) as wire:
            for _ in range(rounds):
                wire.call(0, produce_request(TOPIC, batch([b""] * MOST_PER_ROUND)))
        setup.close()
        committers = [
            Committer(broker, kind, f"{'member' if as_member else 'alone'}-{number}", as_member=as_member)
            for kind in (KafkaClient, NativeClient)
            for as_member in (False, True)
            for number in range(2)
        ]
        for _ in range(rounds):
            stop = threading.Event()
            threads = [threading.Thread(target=c.run, args=(stop,)) for c in committers]
            for thread in threads:
                thread.start()
            stop.wait(chance.uniform(0.1, longest))
            broker.kill()
            stop.set()
            for thread in threads:
                thread.join(60)
                assert not thread.is_alive(), "a commit hangs"
            for committer in committers:
                committer.close()
            broker.start()
            for committer in committers:
                committer.check()
        total = sum(committer.check() for committer in committers)
        for committer in committers:
            committer.close()
        return total
    finally:
        broker.kill()
