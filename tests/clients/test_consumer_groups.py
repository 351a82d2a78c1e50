"""Real clients to which the broker assigns (KIP-848): alone, together, static, by a pattern, over a restart.

And the switch of a group between the two protocols while its members read, back and forth.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from tests.broker_process import BrokerProcess
from tests.clients.group_world import PARTITIONS, World
from tests.clients.members.member import CONSUMER_KINDS, INSTALLED_AS, Member
from tests.clients.wire import Wire

BROKER_ENVIRONMENT = {
    "SLUICE_GROUP_INITIAL_REBALANCE_DELAY_MS": "100",
    "SLUICE_GROUP_MIN_SESSION_TIMEOUT_MS": "1000",
    # A member that was killed is found after eight seconds, and not after 45.
    "SLUICE_GROUP_CONSUMER_SESSION_TIMEOUT_MS": "8000",
    "SLUICE_GROUP_CONSUMER_MIN_SESSION_TIMEOUT_MS": "1000",
    "SLUICE_GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS": "300",
    "SLUICE_GROUP_CONSUMER_MIN_HEARTBEAT_INTERVAL_MS": "100",
}
NEW = "consumer"


def _kind(kind: str, *others: str) -> Any:
    marks = [pytest.mark.client(INSTALLED_AS[one]) for one in {kind, *others}.intersection(INSTALLED_AS)]
    return pytest.param(kind, *others, marks=marks, id="-".join((kind, *others)))


EVERY_KIND = [_kind(kind) for kind in CONSUMER_KINDS]


@pytest.fixture
def world(broker: BrokerProcess) -> Iterator[World]:
    """A fresh topic and group."""
    made = World(broker)
    try:
        yield made
    finally:
        made.close()


def until(what: str, condition: Callable[[], object], seconds: float = 60) -> None:
    """Wait until something is true; a machine that is busy may need most of the time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {what}"
        time.sleep(0.05)


def owned(world: World) -> list[int]:
    """The partitions that members have, as these members said; a partition with two owners is there two times."""
    return sorted(partition for member in world.members for partition in member.assigned or [])


def until_shared(world: World) -> None:
    """Wait until the members have all partitions, and the broker sees it so."""
    fair = {PARTITIONS // len(world.members), -(-PARTITIONS // len(world.members))}

    def shared() -> bool:
        counts = {len(member.assigned or []) for member in world.members}
        return owned(world) == list(range(PARTITIONS)) and counts <= fair

    until("the partitions are shared", shared)
    until("the group is stable", lambda: world.described()["state"] == "Stable")


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_a_member_alone_reads_everything_and_continues_where_it_left(world: World, kind: str) -> None:
    world.write(60)
    first = world.join(kind, protocol=NEW)
    world.wait_until_all_is_read()
    until_shared(world)
    group = world.described()
    assert (group["type"], group["protocol"], len(group["members"])) == ("consumer", "uniform", 1)
    (member,) = group["members"]
    assert (member["kind"], member["epoch"], member["topics"]) == (
        "consumer", group["assignment_epoch"], [world.topic],
    )  # fmt: skip
    assert member["target"] == member["partitions"] and len(member["partitions"]) == PARTITIONS
    world.end(first, "leave")
    until("it has left", lambda: world.described()["members"] == [])
    assert world.described()["state"] == "Empty"
    world.write(30)
    second = world.join(kind, protocol=NEW)
    world.wait_until_all_is_read()
    assert sorted(int(value) for _, _, value in second.reads) == list(range(60, 90))


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_members_share_and_the_rest_gets_all_when_one_leaves_or_dies(world: World, kind: str) -> None:
    one = world.join("confluent-kafka", protocol=NEW)
    until_shared(world)
    kept = set(one.assigned or [])
    other = world.join(kind, protocol=NEW)
    until_shared(world)
    kept &= set(one.assigned or [])
    assert len(kept) == PARTITIONS // 2, "what one keeps is never taken from it"
    world.write(60)
    world.wait_until_all_is_read()
    assert one.reads and other.reads
    assert len(world.numbers_read()) == 60, "each record is read once"
    world.end(other, "leave")
    until_shared(world)
    third = world.join(kind, protocol=NEW)
    until_shared(world)
    world.end(third, "kill")
    world.write(30)
    until_shared(world)
    world.wait_until_all_is_read()


# franz-go 1.22 gets other partitions after a restart, from Kafka 4.1 as well.
@pytest.mark.parametrize("kind", [_kind(kind) for kind in CONSUMER_KINDS if kind != "franz-go"])
def test_a_static_member_has_its_partitions_again_after_a_restart(world: World, kind: str) -> None:
    one = world.join("confluent-kafka", protocol=NEW, instance="one")
    two = world.join(kind, protocol=NEW, instance="two")
    until_shared(world)
    before, group = sorted(two.assigned or []), world.described()
    world.end(two, "leave")
    world.write(30)
    again = world.join(kind, protocol=NEW, instance="two")
    again.wait_for(lambda member: sorted(member.assigned or []) == before)
    world.wait_until_all_is_read()
    assert sorted(one.assigned or []) == sorted(set(range(PARTITIONS)) - set(before))
    found = world.described()
    assert found["generation_id"] == group["generation_id"], "no rebalance"
    assert sorted(m["group_instance_id"] for m in found["members"]) == ["one", "two"]


@pytest.mark.parametrize("kind", [_kind("confluent-kafka"), _kind("java-4.1")])
def test_a_topic_that_is_created_later_is_found_by_the_pattern(world: World, kind: str) -> None:
    world.write(12)
    member = world.join(kind, protocol=NEW, topic=f"^{world.topic}.*")
    member.wait_for(lambda member: len(member.reads) == 12)
    (shown,) = world.described()["members"]
    # librdkafka joins its patterns to one, in parentheses.
    assert shown["pattern"].strip("()") == f"^{world.topic}.*" and shown["topics"] == []
    later = f"{world.topic}-later"
    with Wire(world.broker.kafka_address) as wire:
        wire.create_topic(later, partitions=1)
        wire.write(later, "late")
    until("the record of the new topic", lambda: "late" in [value for _, _, value in member.reads])


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_members_survive_a_restart_and_a_kill_of_the_broker(world: World, kind: str) -> None:
    for _ in range(2):
        world.join(kind, protocol=NEW)
    until_shared(world)
    group = world.described()
    for end in ("stop", "kill"):
        world.write(30)
        getattr(world.broker, end)()
        world.broker.start()
        world.write(30)
        world.wait_until_all_is_read()
        until_shared(world)
    found = world.described()
    assert found["generation_id"] == group["generation_id"], "no member joined again"
    assert {m["member_id"] for m in found["members"]} == {m["member_id"] for m in group["members"]}


class Load(threading.Thread):
    """Writes records all the time, and looks at the committed offsets: they never go back."""

    def __init__(self, world: World) -> None:
        super().__init__(daemon=True)
        self.world = world
        self.failures: list[str] = []
        self._stopping = threading.Event()
        self._committed: dict[int, int] = {}

    def __enter__(self) -> Load:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self.join()

    def run(self) -> None:
        """Write and look until told to stop."""
        while not self._stopping.wait(0.05):
            self.world.write(6)
            with contextlib.suppress(httpx.HTTPError):
                for partition, offset in self.world.committed().items():
                    before = self._committed.get(partition, 0)
                    if offset < before:
                        self.failures.append(f"partition {partition}: committed {before}, then {offset}")
                    self._committed[partition] = offset


SWITCHES = [
    _kind("confluent-kafka", "confluent-kafka"),
    _kind("java-4.1", "confluent-kafka"),
    _kind("confluent-kafka", "java-4.1"),
    _kind("kafka-python", "franz-go"),
]


@pytest.mark.parametrize(("classic", "consumer"), SWITCHES)
def test_a_group_is_upgraded_and_downgraded_member_by_member_under_load(
    world: World, classic: str, consumer: str
) -> None:
    """Each record is read by a member, and committed; each step has members of both protocols in one group."""
    with Load(world) as load:
        for _ in range(2):
            world.join(classic)
        until_shared(world)
        assert world.described()["type"] == "classic"
        _replace(world, lambda: world.join(consumer, protocol=NEW), "consumer")
        assert {m["kind"] for m in world.described()["members"]} == {"consumer"}
        _replace(world, lambda: world.join(classic), "consumer")
    assert not load.failures, load.failures
    assert world.described()["type"] == "classic", "the last member of the new protocol has left"
    until_shared(world)
    world.wait_until_all_is_read()
    members = [*world.members, *world.gone]
    if not any("refused" in event for member in members for _, event in member.events):
        assert sorted(world.numbers_read()) == list(range(world.written)), "each record is read once"


def _replace(world: World, join: Callable[[], Member], between: str) -> None:
    """Replace each member by another, as a rolling restart does."""
    for number, member in enumerate(list(world.members)):
        world.end(member, "leave")
        join()
        until_shared(world)
        if number == 0:
            assert world.described()["type"] == between
            assert {m["kind"] for m in world.described()["members"]} == {"classic", "consumer"}
