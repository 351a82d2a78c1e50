"""The state machine of one replica, and a world of several of them that fail, promise and part.

The world is the proof that counts: whatever happens, what was committed stays where it is, and no two leaders
commit different things.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import combinations, permutations
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from core.replication.epochs import leader_of, next_epoch
from core.replication.replica import Moved, Remembered, Replica, Standing, better_than, needed_answers

LAG = 10.0


def leader_of_two(needed: int = 2) -> Replica:
    replica = Replica(1, (1, 2), lag=LAG)
    replica.created(0.0)
    return replica


# --- the leader --------------------------------------------------------------------------------------------


def test_a_new_partition_is_led_by_its_first_replica_with_all_in_sync() -> None:
    first, second = Replica(1, (1, 2), lag=LAG), Replica(2, (1, 2), lag=LAG)
    for one in (first, second):
        one.created(0.0)
    assert (first.leads, first.isr, second.leads, second.follows) == (True, {1, 2}, False, True)


def test_the_high_watermark_is_what_all_in_sync_have() -> None:
    replica = leader_of_two()
    assert not replica.advance(10, 2)
    assert replica.progress(2, 4, 10, 1.0, 2) == Moved(True, False)
    assert replica.high_watermark == 4
    assert replica.progress(2, 10, 10, 1.0, 2).high_watermark
    assert replica.high_watermark == 10


def test_a_position_that_decreases_takes_nothing_back() -> None:
    replica = leader_of_two()
    replica.progress(2, 10, 10, 1.0, 2)
    assert replica.progress(2, 3, 10, 1.1, 2) == Moved()
    assert replica.high_watermark == 10


@pytest.mark.parametrize(("needed", "committed"), [(1, 10), (2, 0)])
def test_a_follower_that_is_silent_leaves_and_then_fewer_must_have_it(needed: int, committed: int) -> None:
    replica = leader_of_two()
    assert replica.expire(10, LAG, needed) == Moved()
    assert replica.expire(10, LAG + 0.1, needed) == Moved(committed > 0, True)
    assert (replica.isr, replica.high_watermark) == ({1}, committed)


def test_a_follower_that_fetches_but_never_catches_up_leaves_and_comes_back_when_it_does() -> None:
    replica = leader_of_two()
    for second in range(1, 12):
        replica.progress(2, second, 100 * second, float(second), 1)
        replica.expire(100 * second, float(second), 1)
    assert replica.isr == {1}
    assert replica.progress(2, 1100, 1200, 12.0, 1).isr, "it has reached what the log had when it asked last"
    assert replica.isr == {1, 2}


def test_a_follower_that_waits_with_everything_stays() -> None:
    replica = leader_of_two()
    replica.progress(2, 10, 10, 1.0, 2)
    for second in range(2, 40):
        replica.progress(2, 10, 10, float(second), 2)
        assert replica.expire(10, float(second), 2) == Moved()


def test_after_a_promotion_nothing_is_committed_until_enough_have_what_it_began_with() -> None:
    replica = leader_of_two()
    replica.progress(2, 4, 10, 1.0, 2)
    replica.promise(33)
    replica.lead(10, 2.0)
    assert (replica.isr, replica.high_watermark, replica.start) == ({1}, 4, 10)
    assert replica.progress(2, 8, 10, 3.0, 2) == Moved(), "not in sync before it has the start"
    assert replica.progress(2, 10, 10, 3.0, 2) == Moved(True, True)


def test_a_leader_that_resigned_is_still_copied_from() -> None:
    replica = leader_of_two()
    replica.resign()
    assert (replica.leads, replica.source, replica.leader) == (False, True, -1)


# --- promises ----------------------------------------------------------------------------------------------


def test_a_broker_that_promised_an_epoch_serves_no_older_one() -> None:
    replica = leader_of_two()
    assert replica.promise(2)
    assert not replica.leads
    assert not replica.promise(2)
    assert not replica.promise(1)
    assert not replica.follow(1, 0)
    assert replica.follow(2, 7)
    assert (replica.follows, replica.leader, replica.start) == (True, 2, 7)


def test_a_copy_is_complete_once_it_has_what_the_leader_began_with() -> None:
    replica = Replica(2, (1, 2), lag=LAG, remembered=Remembered(1, 1, 0))
    replica.follow(33, 100)
    assert replica.copied(99, 50) == (True, False)
    assert replica.complete == 1
    assert replica.copied(100, 50) == (False, True)
    assert (replica.complete, replica.high_watermark) == (33, 50)


def test_a_log_that_lost_its_beginning_is_not_complete_any_more() -> None:
    replica = Replica(1, (1, 2), lag=LAG, remembered=Remembered(33, 33, 100))
    replica.restored(99)
    assert replica.standing(99) == Standing(-1, 99)


@pytest.mark.parametrize(
    ("replicas", "min_insync", "needed"), [(2, 1, 2), (2, 2, 1), (3, 1, 3), (3, 2, 2), (3, 3, 1), (2, 5, 1)]
)
def test_how_many_must_answer(replicas: int, min_insync: int, needed: int) -> None:
    assert needed_answers(replicas, min_insync) == needed


def test_a_newer_epoch_beats_a_longer_log() -> None:
    assert better_than(Standing(33, 5), {2: Standing(1, 99)}) is None
    assert better_than(Standing(1, 99), {2: Standing(33, 5)}) == 2
    assert better_than(Standing(33, 5), {2: Standing(33, 6), 3: Standing(33, 5)}) == 2
    assert better_than(Standing(33, 5), {}) is None


# --- a world -----------------------------------------------------------------------------------------------


@dataclass
class Node:
    """A broker: its replica, and its log as (epoch, value) pairs. All of the log is on the disk."""

    replica: Replica
    log: list[tuple[int, int]] = field(default_factory=list)
    joined: int = -1
    # What is on the disk.
    remembered: Remembered | None = None

    @property
    def end(self) -> int:
        return len(self.log)


class World:
    """Brokers that lead, copy, are promoted, restarted and cut off from each other, one message at a time.

    `choose` gives one of some things: by chance, or as Hypothesis wants.
    """

    def __init__(self, count: int, needed: int, choose: Callable[[Sequence[Any]], Any]) -> None:
        self.needed = min(needed, count)
        self.ids = list(range(1, count + 1))
        self.nodes = {i: Node(Replica(i, self.ids, lag=LAG)) for i in self.ids}
        for node in self.nodes.values():
            node.replica.created(0.0)
            self.store(node)
        self.committed: list[tuple[int, int]] = []
        self.cut: set[frozenset[int]] = set()
        self.now, self.number = 0.0, 0
        self.choose = choose

    def linked(self, one: int, other: int) -> bool:
        return frozenset((one, other)) not in self.cut

    def store(self, node: Node) -> None:
        node.remembered = node.replica.remembered

    def produce(self) -> None:
        node = self.nodes[self.choose(self.ids)]
        if node.replica.leads:
            self.number += 1
            node.log.append((node.replica.epoch, self.number))
            node.replica.advance(node.end, self.needed)

    def fetch(self) -> None:
        me = self.choose(self.ids)
        node = self.nodes[me]
        leader = self.nodes[leader_of(node.replica.epoch)]
        if not node.replica.follows or not self.linked(me, leader.replica.broker_id):
            return
        if not leader.replica.source or leader.replica.epoch != node.replica.epoch:
            return
        if node.joined != node.replica.epoch:
            common = 0
            while common < min(node.end, leader.end) and node.log[common] == leader.log[common]:
                common += 1
            del node.log[common:]
            node.replica.cut(common)
            node.joined = node.replica.epoch
        node.log += leader.log[node.end : node.end + self.choose([0, 1, 1, 2, 9])]
        node.replica.copied(node.end, leader.replica.high_watermark)
        self.store(node)
        if self.choose([True, True, False]):  # the next fetch, which says what it has, may get lost
            leader.replica.progress(me, node.end, leader.end, self.now, self.needed)

    def promote(self) -> None:
        me = self.choose(self.ids)
        node = self.nodes[me]
        if node.replica.leads:
            return
        reached = [i for i in self.ids if i != me and self.linked(me, i) and self.choose([True, True, False])]
        if 1 + len(reached) < needed_answers(len(self.ids), self.needed) and self.choose([True, True, False]):
            return
        epoch = next_epoch(max(self.nodes[i].replica.epoch for i in [me, *reached]), me)
        node.replica.promise(epoch)
        self.store(node)
        answers = {}
        for i in reached:
            other = self.nodes[i]
            if other.replica.promise(epoch):
                self.store(other)
                answers[i] = other.replica.standing(other.end)
        if 1 + len(answers) < needed_answers(len(self.ids), self.needed):
            return
        if better_than(node.replica.standing(node.end), answers) is None:
            node.replica.lead(node.end, self.now)
            self.store(node)
            node.joined = epoch
            node.replica.advance(node.end, self.needed)

    def announce(self) -> None:
        for me, other in permutations(self.ids, 2):
            leader = self.nodes[me].replica
            if leader.leads and self.linked(me, other) and self.choose([True, False]):
                self.nodes[other].replica.follow(leader.epoch, leader.start)
                self.store(self.nodes[other])

    def restart(self) -> None:
        me = self.choose(self.ids)
        node, before = self.nodes[me], self.nodes[me].replica
        node.replica = Replica(me, self.ids, lag=LAG, remembered=node.remembered)
        node.replica.restored(node.end)
        node.replica.high_watermark = self.choose([0, before.high_watermark])
        node.replica.active = node.replica.start >= 0 and leader_of(node.replica.epoch) != me
        node.joined = -1

    def cut_or_join(self) -> None:
        self.cut ^= {frozenset(self.choose(list(combinations(self.ids, 2))))}

    def time_passes(self) -> None:
        self.now += self.choose([1.0, 1.0, 2 * LAG])
        for node in self.nodes.values():
            if node.replica.source:
                node.replica.expire(node.end, self.now, self.needed)

    def check(self) -> None:
        for node in self.nodes.values():
            shown = node.log[: node.replica.high_watermark]
            assert len(shown) == node.replica.high_watermark, "more is committed than there is"
            known = len(self.committed)
            assert shown[:known] == self.committed[: len(shown)], "two different things were committed"
            if len(shown) > known:
                self.committed = list(shown)
        epochs = [node.replica.epoch for node in self.nodes.values() if node.replica.source]
        assert len(set(epochs)) == len(epochs), "an epoch has two leaders"


def test_thousands_of_worlds_by_chance_lose_nothing() -> None:
    committed = 0
    for seed in range(3000):
        chance = random.Random(seed)
        world = World(chance.choice([2, 3, 3]), chance.choice([1, 2, 2, 2, 3]), chance.choice)
        steps = [world.fetch] * 8 + [world.produce] * 3 + [world.announce] * 3 + [world.promote] * 2
        steps += [world.restart, world.cut_or_join, world.time_passes]
        for _ in range(100):
            chance.choice(steps)()
            world.check()
        committed += len(world.committed)
    assert committed > 3_000, "hardly anything was committed, so that nothing was shown"


class Machine(RuleBasedStateMachine):
    """The same world as Hypothesis explores it, which finds the shortest way to a mistake."""

    @initialize(count=st.integers(2, 3), needed=st.integers(1, 3), data=st.data())
    def build(self, count: int, needed: int, data: st.DataObject) -> None:
        self.world = World(count, needed, lambda things: data.draw(st.sampled_from(things)))

    @rule(
        step=st.sampled_from(
            ["produce", "fetch", "promote", "announce", "restart", "cut_or_join", "time_passes"]
        ),
        data=st.data(),
    )
    def step(self, step: str, data: st.DataObject) -> None:
        self.world.choose = lambda things: data.draw(st.sampled_from(things))
        getattr(self.world, step)()
        self.world.check()


Machine.TestCase.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestMachine = Machine.TestCase
