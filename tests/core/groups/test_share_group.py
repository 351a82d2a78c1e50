"""core.groups.share_group: epochs, sessions, lost answers, and a state machine of members that come and leave."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from uuid import UUID

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from core.errors import ErrorCode
from core.groups.effects import Moment
from core.groups.share_group import Shape, ShareGroup, ShareSettings
from core.vocabulary.groups import CommitRequest
from core.vocabulary.share_groups import JOINING, LEAVING, ShareHeartbeat, ShareReply

SETTINGS = ShareSettings(45.0, 5_000, 3)
JOBS, MAIL = UUID(int=1), UUID(int=2)


class World:
    """A group, its topics, and a clock."""

    def __init__(self) -> None:
        self.group = ShareGroup("workers")
        self.topics: dict[str, Shape] = {"jobs": (JOBS, range(2))}
        self.now = 100.0

    def beat(
        self,
        member: str,
        epoch: int = JOINING,
        topics: Sequence[str] | None = None,
        settings: ShareSettings = SETTINGS,
    ) -> ShareReply:
        if epoch == JOINING and topics is None:
            topics = ["jobs"]
        return self.group.heartbeat(
            ShareHeartbeat(member, epoch, topics), self.topics.get, settings, self.moment
        )

    @property
    def moment(self) -> Moment:
        return Moment(self.now, int(self.now * 1000))

    def tick(self) -> None:
        assert self.group.tick(self.moment).change is None


@pytest.fixture
def world() -> World:
    return World()


def test_a_member_joins_is_assigned_and_leaves(world: World) -> None:
    joined = world.beat("a")
    assert (joined.error, joined.member_id, joined.member_epoch) == (0, "a", 1)
    assert joined.assignment == {JOBS: [0, 1]}
    assert joined.heartbeat_interval_ms == 5_000
    assert world.beat("a", 1).assignment is None
    left = world.beat("a", LEAVING)
    assert (left.error, left.member_epoch, left.assignment) == (0, -1, None)
    assert world.group.state == "Empty"
    assert world.group.empty_since_ms == 100_000


def test_a_second_member_takes_a_half_at_once_and_the_first_learns_with_its_next_heartbeat(
    world: World,
) -> None:
    world.beat("a")
    second = world.beat("b")
    assert second.assignment is not None
    assert (second.member_epoch, len(second.assignment[JOBS])) == (2, 1)
    first = world.beat("a", 1)
    assert first.assignment is not None
    assert first.member_epoch == 2
    assert sorted([*first.assignment[JOBS], *second.assignment[JOBS]]) == [0, 1]


def test_a_lost_answer_is_given_again(world: World) -> None:
    world.beat("a")
    world.beat("b")
    lost = world.beat("a", 1)
    assert lost.assignment is not None
    again = world.beat("a", 1)
    assert (again.error, again.member_epoch, again.assignment) == (0, 2, lost.assignment)
    assert world.beat("a", 2).assignment is None


@pytest.mark.parametrize(
    ("member", "epoch", "error"),
    [
        ("a", 9, ErrorCode.FENCED_MEMBER_EPOCH),
        ("a", 1, ErrorCode.FENCED_MEMBER_EPOCH),
        ("other", 1, ErrorCode.UNKNOWN_MEMBER_ID),
        ("other", LEAVING, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_wrong_epoch_or_member_is_refused(world: World, member: str, epoch: int, error: ErrorCode) -> None:
    world.beat("a")
    world.beat("b")
    world.beat("a", 1)
    world.beat("b", LEAVING)
    world.beat("a", 2)
    reply = world.beat(member, epoch)
    assert reply.error is error
    assert reply.message


def test_a_full_group_takes_no_more_but_lets_its_members_join_again(world: World) -> None:
    for member in "abc":
        assert world.beat(member).error is ErrorCode.NONE
    assert world.beat("d").error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert world.beat("a").error is ErrorCode.NONE


def test_a_session_ends_at_its_time_and_others_get_its_partitions(world: World) -> None:
    world.beat("a")
    world.now += 30
    world.beat("b")
    assert world.group.wake_at == 145
    world.now = 145
    world.tick()
    assert world.group.wake_at == 175
    found = world.beat("b", 2)
    assert found.assignment == {JOBS: [0, 1]}
    world.now = 175
    world.tick()
    assert world.group.wake_at == 190
    world.now = 190
    world.tick()
    assert world.group.is_empty
    assert world.group.wake_at == inf


def test_a_pause_of_the_process_ends_no_session(world: World) -> None:
    world.beat("a")
    world.now += 100
    world.group.resume(world.now, 100)
    world.tick()
    assert world.beat("a", 1).error is ErrorCode.NONE


def test_new_partitions_and_topics_come_with_the_next_heartbeat(world: World) -> None:
    world.beat("a", topics=["jobs", "mail"])
    world.topics["jobs"] = (JOBS, range(3))
    assert world.beat("a", 1).assignment == {JOBS: [0, 1, 2]}
    world.topics["mail"] = (MAIL, (1,))
    assert world.beat("a", 2).assignment == {JOBS: [0, 1, 2], MAIL: [1]}
    del world.topics["jobs"]
    assert world.beat("a", 3).assignment == {MAIL: [1]}
    assert world.beat("a", 4, ["jobs"]).assignment == {}


def test_a_topic_made_again_is_another_one(world: World) -> None:
    world.beat("a")
    world.topics["jobs"] = (MAIL, range(2))
    assert world.beat("a", 1).assignment == {MAIL: [0, 1]}


def test_the_views_have_kafkas_words(world: World) -> None:
    world.beat("a", topics=["jobs"])
    assert world.group.listing() == ("workers", "share", "Stable", "share")
    view = world.group.share_view()
    assert (view.state, view.epoch, view.members[0].assignment) == ("Stable", 1, {JOBS: [0, 1]})
    assert world.group.view().group_type == "share"
    assert world.group.subscribed_topics == {"jobs"}
    assert world.group.is_subscribed("jobs")
    assert not world.group.is_subscribed("mail")


def test_a_group_with_members_is_not_deleted_and_a_deleted_one_is_dead(world: World) -> None:
    world.beat("a")
    assert world.group.delete() is ErrorCode.NON_EMPTY_GROUP
    world.beat("a", LEAVING)
    assert world.group.delete() is ErrorCode.NONE
    assert world.group.is_dead
    assert world.beat("a").error is ErrorCode.GROUP_ID_NOT_FOUND
    assert world.group.delete() is ErrorCode.GROUP_ID_NOT_FOUND
    world.group.revive()
    assert world.beat("a").error is ErrorCode.NONE


def test_a_share_group_commits_no_offsets(world: World) -> None:
    assert world.group.check_commit(CommitRequest([]), 0) is ErrorCode.GROUP_ID_NOT_FOUND
    assert world.group.check_staged(CommitRequest([])) is ErrorCode.GROUP_ID_NOT_FOUND
    assert world.group.check_fetch(None, -1) is ErrorCode.GROUP_ID_NOT_FOUND


def test_an_id_is_kept_by_a_queue(world: World) -> None:
    assert world.group.is_unused
    world.group.is_kept = True
    assert not world.group.is_unused
    assert world.group.is_stable
    world.group.resave()
    assert world.group.release(ErrorCode.NOT_COORDINATOR).answers == []


MEMBERS = st.sampled_from("abcde")
TOPICS = st.sampled_from(["jobs", "mail", "news"])


class Members(RuleBasedStateMachine):
    """Members join, beat, lose answers, leave and expire; topics come and grow."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        # What each member believes: its epoch and its partitions; and when it was last seen.
        self.epochs: dict[str, int] = {}
        self.owned: dict[str, dict[UUID, Sequence[int]]] = {}
        self.seen: dict[str, float] = {}
        self.subscribed: dict[str, set[str]] = {}
        self.settings = ShareSettings(45.0, 5_000, 4)
        # Topics made so far; each gets another id.
        self.made = 100

    def _take(self, member: str, reply: ShareReply, *, lost: bool) -> None:
        assert reply.error is ErrorCode.NONE
        self.seen[member] = self.world.now
        if not lost:
            assert reply.member_epoch >= self.epochs.get(member, 0)
            self.epochs[member] = reply.member_epoch
            if reply.assignment is not None:
                self.owned[member] = dict(reply.assignment)

    @rule(member=MEMBERS, topics=st.sets(TOPICS, min_size=1))
    def join(self, member: str, topics: set[str]) -> None:
        reply = self.world.beat(member, JOINING, sorted(topics), self.settings)
        if member not in self.seen and len(self.seen) >= 4:
            assert reply.error is ErrorCode.GROUP_MAX_SIZE_REACHED
            return
        self.epochs.pop(member, None)
        self.subscribed[member] = topics
        self._take(member, reply, lost=False)

    @rule(member=MEMBERS, lost=st.booleans())
    def beat(self, member: str, lost: bool) -> None:
        if member not in self.seen:
            assert self.world.beat(member, 1).error is ErrorCode.UNKNOWN_MEMBER_ID
            return
        self._take(member, self.world.beat(member, self.epochs[member], settings=self.settings), lost=lost)
        if lost:
            # The client asks again before it can do anything else.
            self._take(
                member, self.world.beat(member, self.epochs[member], settings=self.settings), lost=False
            )

    @rule(member=MEMBERS)
    def leave(self, member: str) -> None:
        reply = self.world.beat(member, LEAVING)
        assert (reply.error is ErrorCode.NONE) == (member in self.seen)
        self._forget(member)

    def _forget(self, member: str) -> None:
        for table in (self.epochs, self.owned, self.seen, self.subscribed):
            table.pop(member, None)

    @rule(topic=TOPICS, count=st.integers(0, 4), again=st.booleans())
    def change_topic(self, topic: str, count: int, again: bool) -> None:
        known = self.world.topics.get(topic)
        if count == 0:
            self.world.topics.pop(topic, None)
        elif known is None or again:
            self.made += 1
            self.world.topics[topic] = (
                UUID(int=self.made),
                range(count),
            )
        else:
            self.world.topics[topic] = known[0], range(max(count, len(known[1])))

    @rule(seconds=st.floats(0.1, 30))
    def wait(self, seconds: float) -> None:
        self.world.now += seconds
        if self.world.group.wake_at <= self.world.now:
            self.world.tick()
        for member in [one for one, seen in self.seen.items() if seen + 45.0 <= self.world.now]:
            self._forget(member)

    @rule()
    def settle(self) -> None:
        """After two heartbeats of all, each member has its assignment, and all partitions have a member."""
        for _ in range(2):
            for member in sorted(self.seen):
                self._take(
                    member, self.world.beat(member, self.epochs[member], settings=self.settings), lost=False
                )
        wanted = {
            (shape[0], partition)
            for member in self.seen
            for topic in self.subscribed[member]
            if (shape := self.world.topics.get(topic)) is not None
            for partition in shape[1]
        }
        owned = {
            (topic_id, partition)
            for member in self.seen
            for topic_id, partitions in self.owned[member].items()
            for partition in partitions
        }
        assert owned == wanted
        assert {self.epochs[member] for member in self.seen} <= {self.world.group.epoch}

    @invariant()
    def members_are_those_of_the_model(self) -> None:
        view = self.world.group.share_view()
        assert {one.member_id for one in view.members} == set(self.seen)
        assert (view.state == "Stable") == bool(self.seen)
        if self.seen:
            assert self.world.group.wake_at <= min(self.seen.values()) + 45.0


Members.TestCase.settings = hypothesis_settings(max_examples=60, stateful_step_count=40, deadline=None)
TestMembers = Members.TestCase
