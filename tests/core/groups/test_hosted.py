"""The join loop of members that the broker hosts, with a policy that a test writes."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from core.errors import BrokerError, ErrorCode
from core.groups.assignor import STRATEGIES
from core.groups.coordinator import GroupCoordinator
from core.groups.hosted import RETRY_DELAY, HostedMembers, Then, offers
from core.vocabulary.groups import ASSIGNORS, JoinReply, JoinRequest, Resumption, State, SyncReply
from core.vocabulary.member_metadata import owned_partitions
from tests.core.groups.machine import REBALANCE_MS, SESSION_MS
from tests.core.groups.world import AllTopics, World, world


class Policy:
    """A member that takes what it gets, and writes down what happens."""

    leads = True
    syncs = True

    def __init__(self, hosted: HostedMembers, member_id: str = "m", group_id: str = "g") -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.hosted = hosted
        self.events: list[object] = []
        self.known = False
        self.refusals: dict[ErrorCode, Then] = {}
        self.before: BaseException | None = None
        self.session_ms = SESSION_MS
        self.closed = False
        self.earlier: Resumption | None = None

    def resumes(self) -> Resumption | None:
        return self.earlier

    async def resumed(self, reply: SyncReply) -> Then:
        self.events.append(reply.error or "resumed")
        self.known, self.earlier = reply.error is not ErrorCode.UNKNOWN_MEMBER_ID, None
        return Then.AGAIN if reply.error else Then.DONE

    def named(self, member_id: str) -> None:
        self.member_id, self.known = member_id, True

    async def before_join(self) -> None:
        if self.before is not None:
            raise self.before

    def request(self) -> JoinRequest | None:
        if self.closed:
            return None
        known = self.member_id if self.known else ""
        return JoinRequest(
            known, "consumer", offers(["t"]), self.session_ms, REBALANCE_MS, "c", new_member_id=self.member_id
        )

    async def assigned(self, joined: JoinReply, assignment: bytes) -> Then:
        self.known = True
        self.events.append((joined.generation, len(owned_partitions(assignment))))
        return Then.DONE

    def refused(self, error: ErrorCode) -> Then:
        self.events.append(error)
        return self.refusals.get(error, Then.FAIL)

    async def failed(self, error: BrokerError) -> None:
        self.events.append(f"failed {error.code.name}")
        assert self.hosted.running(self) is not None

    def ended(self) -> None:
        self.events.append("ended")
        assert self.hosted.running(self) is None

    def group_moved(self) -> None:
        coordinator = cast(GroupCoordinator, self.hosted._coordinator)
        if State.PREPARING_REBALANCE in [x.state for x in coordinator.list() if x.group_id == self.group_id]:
            self.hosted.start(self)


async def two() -> tuple[World, HostedMembers, Policy, Policy]:
    """Two members in a stable group, in its generation 1."""
    w = await world()
    hosted = HostedMembers(w.coordinator, AllTopics())
    first, second = Policy(hosted, "a"), Policy(hosted, "b")
    for member in (first, second):
        hosted.add(member)
        hosted.start(member)
    await w.advance(6.5)
    assert first.events == second.events == [(1, 5), "ended"]
    return w, hosted, first, second


async def test_members_join_the_leader_assigns_and_all_are_settled() -> None:
    w, hosted, first, second = await two()
    assert hosted.running(first) is hosted.running(second) is None
    assert [x.state for x in w.coordinator.list()] == ["Stable"]


async def test_members_come_to_a_round_that_another_begins_and_a_removed_one_does_not() -> None:
    w, hosted, first, second = await two()
    third = Policy(hosted, "c")
    hosted.remove(second)
    third.leads = third.syncs = False
    hosted.start(third)
    await w.advance(0.1)
    assert hosted.running(first) is not None and hosted.running(second) is None
    await w.advance(REBALANCE_MS / 1000)
    assert (first.events[2:], second.events[2:], third.events) == ([(2, 5), "ended"], [], [(2, 0), "ended"])


async def test_a_member_whose_client_leads_and_syncs_does_neither() -> None:
    w = await world()
    member = Policy(HostedMembers(w.coordinator, AllTopics()))
    member.leads = member.syncs = False
    task = member.hosted.start(member)
    assert member.hosted.start(member) is task
    await w.advance(3.5)
    assert member.events == [(1, 0), "ended"] and task.result() is None
    assert [x.state for x in w.coordinator.list()] == ["CompletingRebalance"]


async def test_a_refused_member_joins_again_at_once_or_later_or_fails() -> None:
    w = await world()
    member = Policy(HostedMembers(w.coordinator, AllTopics()))
    member.known = True
    member.refusals = {ErrorCode.UNKNOWN_MEMBER_ID: Then.LATER}
    task = member.hosted.start(member)
    await w.turn()
    assert member.events == [ErrorCode.UNKNOWN_MEMBER_ID]
    await asyncio.sleep(RETRY_DELAY * 1.5)
    assert member.events == [ErrorCode.UNKNOWN_MEMBER_ID] * 2
    member.session_ms = 1
    error = await task
    assert error is not None and error.code is ErrorCode.INVALID_SESSION_TIMEOUT
    assert member.events[2:] == [
        ErrorCode.INVALID_SESSION_TIMEOUT,
        "failed INVALID_SESSION_TIMEOUT",
        "ended",
    ]


async def test_a_member_that_failed_is_called_again_after_a_delay() -> None:
    w, hosted, first, _ = await two()
    first.before = BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, "no space left")
    hosted.start(Policy(hosted, "c"))
    await w.turn()
    assert set(first.events[2:]) == {"failed KAFKA_STORAGE_ERROR", "ended"}
    assert hosted.running(first) is None
    first.before = None
    await asyncio.sleep(RETRY_DELAY * 1.5)
    assert first.events[-2:] == [(2, 4), "ended"]


async def test_a_member_of_an_earlier_run_continues_without_a_join_or_joins_if_its_group_does_not_know_it() -> (
    None
):
    w, _, first, second = await two()
    again = Policy(HostedMembers(w.coordinator, AllTopics()), "a")
    again.earlier = Resumption("a", 1, None)
    await again.hosted.start(again)
    assert again.events == ["resumed", "ended"] and first.events == [(1, 5), "ended"]
    stranger = Policy(again.hosted, "c")
    stranger.earlier = Resumption("c", 1, None)
    again.hosted.start(stranger)
    await w.advance(REBALANCE_MS / 1000)
    assert stranger.events[0] is ErrorCode.UNKNOWN_MEMBER_ID and stranger.events[-1] == "ended"
    assert len(second.events) > 2


async def test_a_fault_in_a_policy_is_logged_and_ends_the_loop_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    w = await world()
    member = Policy(HostedMembers(w.coordinator, AllTopics()))
    member.before = ValueError("a fault")
    task = member.hosted.start(member)
    await w.turn()
    assert isinstance(task.exception(), ValueError) and member.events == ["ended"]
    assert "could not join" in caplog.text


async def test_a_loop_ends_when_it_is_stopped_and_when_its_policy_wants_no_more() -> None:
    w = await world()
    hosted = HostedMembers(w.coordinator, AllTopics())
    member = Policy(hosted)
    hosted.start(member)
    await w.turn()
    await hosted.stop(member)
    await hosted.stop(member)
    assert member.events == ["ended"] and hosted.running(member) is None
    member.closed = True
    assert await hosted.start(member) is None
    assert member.events == ["ended", "ended"]


async def test_members_of_a_drained_registry_are_left_alone() -> None:
    w, hosted, first, _ = await two()
    w.registry.drain()
    hosted.add(first)
    await w.turn()
    assert first.events == [(1, 5), "ended"]


async def test_a_member_leaves_in_the_background_also_when_the_group_is_not_served() -> None:
    w, hosted, first, second = await two()
    hosted.remove(first)
    hosted.leave("g", "a")
    await w.turn()
    await w.advance(0.1)
    assert second.events[2:] == [(2, 10), "ended"]
    w.registry.drain()
    hosted.leave("g", "b")
    await w.turn()


def test_offers_are_the_assignors_that_there_are() -> None:
    assert tuple(STRATEGIES) == ASSIGNORS
    assert [name for name, _ in offers(["t"], "sticky")][:2] == ["sticky", "range"]
    with pytest.raises(BrokerError) as error:
        offers(["t"], "best")
    assert error.value.code is ErrorCode.UNSUPPORTED_ASSIGNOR
