"""Consume, transform, produce: members of a group that copy records in transactions (KIP-447)."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.broker_process import BrokerProcess
from tests.clients.driver import CALL_SECONDS
from tests.clients.members.member import COPIERS, INSTALLED_AS, Member
from tests.clients.test_groups import BROKER_ENVIRONMENT as BROKER_ENVIRONMENT
from tests.clients.test_groups import PARTITIONS, World
from tests.clients.wire import Wire
from tests.peers.committed import open_offsets, read_all
from tests.peers.reading import Cluster

# The one that each shares a group with.
COMPANION = "confluent-kafka"
EVERY = pytest.param(
    COPIERS,
    marks=[
        pytest.mark.client(name) for name in sorted({INSTALLED_AS.get(kind, "") for kind in COPIERS} - {""})
    ],
    id="every client",
)


class Copied(World):
    """A topic, its copy, and the members of a group that copy one into the other."""

    def __init__(self, broker: BrokerProcess) -> None:
        super().__init__(broker)
        self.copy = f"{self.topic}-copy"
        with Wire(broker.kafka_address) as wire:
            wire.create_topic(self.copy, partitions=PARTITIONS)

    def start(self, kind: str, **settings: str) -> Member:
        """Start a copier."""
        self.members.append(Member(kind, self.broker, self.group, self.topic, copier=settings))
        return self.members[-1]

    def is_copied(self) -> bool:
        """Whether the group has committed all that was written, and no transaction is open."""
        done = sum(self.committed().values()) == self.written
        return done and not open_offsets(Cluster(self.broker.kafka), self.copy)

    def check(self) -> None:
        """Check that the committed records of the copy are those of the topic: each once, in order."""
        cluster = Cluster(self.broker.kafka)
        topic, copy = (
            {
                partition: [one.value() for one in messages]
                for partition, messages in read_all(cluster, name, committed=True).items()
            }
            for name in (self.topic, self.copy)
        )
        assert sum(map(len, topic.values())) == self.written
        assert copy == topic


def wait(what: str, condition: Callable[[], object]) -> None:
    """Wait until something is true."""
    deadline = time.monotonic() + 2 * CALL_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not in {2 * CALL_SECONDS} s"
        time.sleep(0.1)


def said(member: Member, event: str) -> int:
    """How often a member has said this."""
    return sum(event in one for _, one in list(member.events))


def all_committed(world: World) -> bool:
    """Whether the group has committed all that was written."""
    return sum(world.committed().values()) == world.written


@pytest.mark.timeout(420)
@pytest.mark.parametrize("kinds", [EVERY])
def test_a_member_of_an_old_generation_cannot_commit(
    broker: BrokerProcess, kinds: tuple[str, ...], tmp_path: Path
) -> None:
    worlds = {kind: Copied(broker) for kind in kinds}
    try:
        # In a transaction with records, and before its offsets: the next thing that it sends are these.
        old = {}
        for kind, world in worlds.items():
            world.write(30)
            old[kind] = world.start(kind, HOLD=str(tmp_path / kind))
        for member in old.values():
            member.wait_for(lambda one: said(one, "holding") > 0, 2 * CALL_SECONDS)
            member.pause()
        for kind, world in worlds.items():
            world.start(COMPANION)
            wait(f"another one has the partitions of {kind}", lambda world=world: all_committed(world))
        for kind, member in old.items():
            (tmp_path / kind).touch()
            member.resume()
        for member in old.values():
            member.wait_for(lambda one: said(one, "refused") > 0, 2 * CALL_SECONDS)
        for kind, world in worlds.items():
            world.write(30)
            wait(f"all is copied with {kind}", world.is_copied)
            world.check()
    finally:
        for world in worlds.values():
            world.close()


@pytest.mark.timeout(420)
@pytest.mark.parametrize("kinds", [EVERY])
def test_each_record_is_copied_once_while_members_of_all_clients_join_and_die(
    broker: BrokerProcess, kinds: tuple[str, ...]
) -> None:
    world = Copied(broker)
    try:
        # One after another: each gets partitions of those that are at work.
        for kind in kinds:
            member = world.start(kind, TRANSACTION_TIMEOUT_MS="3000")

            def has_copied(member: Member = member) -> bool:
                world.write(6)
                return said(member, "committed") > 0

            wait(f"{kind} copies", has_copied)
        # And those that are left get the partitions of the dead.
        for number, member in enumerate(list(world.members)[:-1]):
            world.write(60)
            world.end(member, "leave" if number % 2 else "kill")
        wait("all is copied", world.is_copied)
        world.check()
    finally:
        world.close()
