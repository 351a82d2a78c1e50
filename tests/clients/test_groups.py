"""Real clients in one consumer group: alone, taking over from each other, and all at once in disorder."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.broker_process import BrokerProcess
from tests.clients.group_world import PARTITIONS, World
from tests.clients.members.member import INSTALLED_AS, KAFKA_GO, KINDS, OLD_KINDS

BROKER_ENVIRONMENT = {
    "SLUICE_GROUP_INITIAL_REBALANCE_DELAY_MS": "100",
    "SLUICE_GROUP_MIN_SESSION_TIMEOUT_MS": "1000",
}
if os.environ.get("SLUICE_LONG_TESTS") == "1":
    CHAOS_SECONDS = 1800.0
else:
    CHAOS_SECONDS = 30.0 if os.environ.get("CI") == "true" else 15.0
MAX_MEMBERS = 6


def _kind(kind: str) -> Any:
    return pytest.param(kind, marks=[pytest.mark.client(INSTALLED_AS[kind])] if kind in INSTALLED_AS else [])


EVERY_KIND = [_kind(kind) for kind in (*KINDS, *OLD_KINDS, KAFKA_GO)]


def _companion(kind: str) -> str:
    """The client that a member shares a group with: librdkafka, if they have a protocol in common."""
    return KAFKA_GO if kind == KAFKA_GO else "confluent-kafka"


@pytest.fixture
def world(broker: BrokerProcess) -> Iterator[World]:
    """A fresh topic and group."""
    made = World(broker)
    try:
        yield made
    finally:
        made.close()


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_a_member_alone_reads_everything_and_continues_where_it_left(world: World, kind: str) -> None:
    world.write(60)
    first = world.join(kind)
    world.wait_until_all_is_read()
    assert sorted(first.assigned or []) == list(range(PARTITIONS))
    world.end(first, "leave")
    assert world.described()["members"] == []
    world.write(30)
    second = world.join(kind)
    world.wait_until_all_is_read()
    assert sorted(int(value) for _, _, value in second.reads) == list(range(60, 90))


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_a_member_of_any_client_shares_with_another_which_gets_all_when_it_leaves_or_dies(
    world: World, kind: str
) -> None:
    one = world.join(_companion(kind))
    one.wait_for(lambda member: len(member.assigned or []) == PARTITIONS)
    other = world.join(kind)
    for member in (one, other):
        member.wait_for(lambda member: len(member.assigned or []) == PARTITIONS // 2)
    assert sorted([*(one.assigned or []), *(other.assigned or [])]) == list(range(PARTITIONS))
    world.write(60)
    world.wait_until_all_is_read()
    assert one.reads
    assert other.reads
    world.end(other, "leave")
    one.wait_for(lambda member: len(member.assigned or []) == PARTITIONS)
    # Another one of its kind dies.
    third = world.join(kind)
    for member in (one, third):
        member.wait_for(lambda member: len(member.assigned or []) == PARTITIONS // 2)
    world.end(third, "kill")
    one.wait_for(lambda member: len(member.assigned or []) == PARTITIONS)
    world.write(30)
    world.wait_until_all_is_read()


COOPERATIVE = [
    pytest.param(one, other, marks=[pytest.mark.client("go clients")], id=f"{one}-{other}")
    for one, other in (("franz-go", "sarama"), ("sarama", "confluent-kafka"), ("confluent-kafka", "franz-go"))
]


@pytest.mark.parametrize(("kind", "others"), COOPERATIVE)
def test_cooperative_members_keep_what_they_have_while_others_come_and_die(
    world: World, kind: str, others: str
) -> None:
    one = world.join(kind, "cooperative-sticky")
    one.wait_for(lambda member: len(member.assigned or []) == PARTITIONS)
    second, third = world.join(others, "cooperative-sticky"), world.join(others, "cooperative-sticky")
    for member in world.members:
        member.wait_for(lambda member: len(member.assigned or []) == PARTITIONS // 3)
        world.write(12)
    kept = set(one.assigned or [])
    world.end(second, "kill")
    for member in (one, third):
        member.wait_for(lambda member: len(member.assigned or []) == PARTITIONS // 2)
    world.write(12)
    world.wait_until_all_is_read()
    assert sorted([*(one.assigned or []), *(third.assigned or [])]) == list(range(PARTITIONS))
    owned = [set(event["assigned"]) for _, event in one.events if "assigned" in event]
    full = next(at for at, partitions in enumerate(owned) if len(partitions) == PARTITIONS)
    assert all(kept <= partitions for partitions in owned[full:])


class Watcher(threading.Thread):
    """Looks at the group all the time: one owner per partition and generation, positions never go back."""

    def __init__(self, world: World) -> None:
        super().__init__(daemon=True)
        self.world = world
        self.stopping = threading.Event()
        self.failures: list[str] = []
        self.generations: dict[int, dict[str, frozenset[int]]] = {}
        self._committed: dict[int, int] = {}

    def run(self) -> None:
        """Look until told to stop."""
        while not self.stopping.wait(0.05) and not self.failures:
            try:
                self._look_at_owners(self.world.described())
                self._look_at_positions(self.world.committed())
            except httpx.HTTPError:
                continue

    def _look_at_owners(self, group: dict[str, Any]) -> None:
        if group.get("state") != "Stable":
            return
        generation = group["generation_id"]
        owners = {
            m["member_id"]: frozenset(p["partition"] for p in m["partitions"]) for m in group["members"]
        }
        given = sorted(partition for owned in owners.values() for partition in owned)
        if given != list(range(PARTITIONS)):
            self.failures.append(f"generation {generation} gives {owners}")
        if generation not in self.generations:
            self.world.diary.append((time.monotonic(), f"generation {generation}: {owners}"))
        if self.generations.setdefault(generation, owners) != owners:
            self.failures.append(f"generation {generation}: {self.generations[generation]}, later {owners}")
        if generation < max(self.generations):
            self.failures.append(f"generation {generation} after {max(self.generations)}")

    def _look_at_positions(self, committed: dict[int, int]) -> None:
        for partition, offset in committed.items():
            before = self._committed.get(partition, 0)
            if offset < before:
                self.failures.append(f"partition {partition}: committed {before}, then {offset}")
            if offset > before + 1:
                self.world.diary.append(
                    (time.monotonic(), f"partition {partition} from {before} to {offset}")
                )
            self._committed[partition] = offset


@pytest.mark.client("kafkajs")
@pytest.mark.client("kafka")
@pytest.mark.client("curl")
@pytest.mark.client("go clients")
@pytest.mark.timeout(CHAOS_SECONDS + 240)
def test_members_of_all_clients_come_and_go_and_every_record_is_delivered(world: World) -> None:
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    print(f"seed {seed}")
    watcher = Watcher(world)
    watcher.start()
    try:
        _come_and_go(world, chance, watcher)
        world.wait_until_all_is_read()
    finally:
        watcher.stopping.set()
        watcher.join()
    assert not watcher.failures, (seed, watcher.failures)
    print(
        f"{world.written} records, {len(world.numbers_read())} reads, {len(watcher.generations)} generations"
    )


def _come_and_go(world: World, chance: random.Random, watcher: Watcher) -> None:
    """Records are written while members join, leave and die; one of librdkafka's is there in the end."""
    for kind in KINDS:
        world.join(kind)
    end = time.monotonic() + CHAOS_SECONDS
    while time.monotonic() < end:
        pause = time.monotonic() + chance.uniform(0.3, 2.5)
        while time.monotonic() < pause:
            world.write(10)
            time.sleep(0.03)
        if len(world.members) < 2 or (len(world.members) < MAX_MEMBERS and chance.random() < 0.5):
            world.join(chance.choice(KINDS))
        else:
            world.end(chance.choice(world.members), chance.choice(["leave", "kill"]))
        assert not watcher.failures, watcher.failures
    if not any(member.kind == "confluent-kafka" for member in world.members):
        world.join("confluent-kafka")
