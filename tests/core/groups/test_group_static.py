"""Static members (KIP-345): they keep their place, and a client with their old id is fenced."""

from __future__ import annotations

from core.errors import ErrorCode
from core.vocabulary.groups import Leaver, State
from tests.core.groups.machine import Machine, stable, static_leader, subscription

BOTH = (("sticky", subscription("t")), ("range", subscription("t")))


# --- static members ----------------------------------------------------------------------------------------


def test_a_static_member_is_given_its_id_without_a_second_round_trip() -> None:
    machine = Machine()
    waiter = machine.join(new_id="i-1", instance="i", id_required=True)
    machine.end_round()
    assert machine.joined(waiter).member_id == "i-1"
    assert machine.joined(waiter).members[0].group_instance_id == "i"


def test_a_static_member_comes_back_to_a_stable_group_unnoticed_and_the_old_id_is_fenced() -> None:
    machine = stable("a")
    machine.join(new_id="i-1", instance="i")
    machine.join("a")
    machine.sync("a", {"i-1": b"I"})
    machine.sync("i-1", group_instance_id="i")
    back = machine.joined(machine.join(new_id="i-2", instance="i", id_required=True))
    assert (back.error, back.member_id, back.generation, back.leader_id) == (ErrorCode.NONE, "i-2", 2, "a")
    assert machine.state is State.STABLE
    assert machine.synced(machine.sync("i-2", group_instance_id="i")).assignment == b"I"
    assert machine.heartbeat("i-1", instance="i") is ErrorCode.FENCED_INSTANCE_ID
    assert machine.heartbeat("i-1") is ErrorCode.UNKNOWN_MEMBER_ID
    assert machine.commit("i-1", instance="i") is ErrorCode.FENCED_INSTANCE_ID
    assert machine.synced(machine.sync("i-1", group_instance_id="i")).error is ErrorCode.FENCED_INSTANCE_ID
    assert machine.joined(machine.join("i-1", instance="i")).error is ErrorCode.FENCED_INSTANCE_ID
    assert machine.leave(Leaver("i-1", "i"))[0].error is ErrorCode.FENCED_INSTANCE_ID
    assert machine.heartbeat("i-2", instance="i") is ErrorCode.NONE


def test_a_static_leader_that_comes_back_leads_on_but_need_not_assign() -> None:
    machine = static_leader()
    back = machine.joined(machine.join(new_id="i-2", instance="i", can_skip=True))
    assert (back.leader_id, back.skip_assignment, len(back.members)) == ("i-2", True, 2)
    assert machine.state is State.STABLE


def test_a_static_leader_whose_client_cannot_skip_is_told_that_another_member_leads() -> None:
    machine = static_leader()
    back = machine.joined(machine.join(new_id="i-2", instance="i"))
    assert (back.leader_id, back.skip_assignment, back.members) == ("i-1", False, ())


def test_a_static_member_that_wants_other_topics_starts_a_round() -> None:
    machine = static_leader()
    waiter = machine.join(new_id="i-2", instance="i", protocols=(("range", subscription("u")),))
    assert machine.state is State.PREPARING_REBALANCE
    machine.join("b")
    assert machine.joined(waiter).generation == 2


def test_a_static_member_that_changes_the_elected_protocol_starts_a_round() -> None:
    machine = Machine()
    machine.join(new_id="i-1", instance="i", protocols=BOTH)
    machine.end_round()
    machine.sync("i-1", {"i-1": b"I"})
    machine.join(new_id="i-2", instance="i", protocols=(("range", subscription("t")), *BOTH[:1]))
    assert machine.group.generation == 2 and machine.group.protocol == "range"


def test_a_static_member_that_comes_back_before_the_sync_starts_a_round() -> None:
    machine = static_leader()
    machine.join("i-1", instance="i")
    machine.join("b")
    sync = machine.sync("b")
    waiter = machine.join(new_id="i-2", instance="i")
    assert machine.synced(sync).error is ErrorCode.REBALANCE_IN_PROGRESS
    machine.join("b")
    assert machine.joined(waiter).generation == 3


def test_waiting_requests_of_a_fenced_member_are_told_so() -> None:
    machine = static_leader()
    join = machine.join("i-1", instance="i")
    machine.join(new_id="i-2", instance="i")
    assert machine.joined(join).error is ErrorCode.FENCED_INSTANCE_ID
    machine.join("b")
    machine.join(new_id="j-1", instance="j")
    machine.join("b")
    machine.join("i-2", instance="i")
    sync = machine.sync("j-1", group_instance_id="j")
    machine.join(new_id="j-2", instance="j")
    assert machine.synced(sync).error is ErrorCode.FENCED_INSTANCE_ID


def test_a_static_member_that_misses_a_round_keeps_its_place_until_its_session_ends() -> None:
    machine = Machine()
    machine.join(new_id="i-1", instance="i", session_ms=300_000, rebalance_ms=20_000)
    machine.join(new_id="b", session_ms=300_000, rebalance_ms=20_000)
    machine.end_round()
    machine.sync("b")
    machine.sync("i-1", {})
    waiter = machine.join("b", protocols=BOTH, session_ms=100_000, rebalance_ms=20_000)
    machine.advance(20.1)
    reply = machine.joined(waiter)
    assert (reply.leader_id, len(reply.members)) == ("b", 2)
    machine.sync("b", {"i-1": b"I"})
    for _ in range(5):
        machine.advance(20)
        machine.heartbeat("b")
    assert machine.heartbeat("i-1", 1, "i") is ErrorCode.ILLEGAL_GENERATION
    again = machine.joined(machine.join("i-1", instance="i"))
    assert (again.error, again.generation) == (ErrorCode.NONE, 2)
    assert machine.synced(machine.sync("i-1")).assignment == b"I"


def test_a_static_member_that_owed_a_sync_of_an_older_round_owes_it_no_more() -> None:
    machine = Machine()
    machine.join(new_id="b", session_ms=300_000, rebalance_ms=20_000)
    machine.join(new_id="i-1", instance="i", session_ms=300_000, rebalance_ms=20_000)
    machine.end_round()
    machine.sync("b", {})
    machine.join("b", protocols=BOTH, session_ms=300_000, rebalance_ms=20_000)
    machine.advance(20.1)
    machine.sync("b", {})
    machine.advance(25)
    assert "i-1" in machine.group.roster.members


def test_a_group_of_static_members_that_all_stay_away_waits_for_their_sessions() -> None:
    machine = Machine()
    machine.join(new_id="i-1", instance="i", session_ms=100_000, rebalance_ms=5_000)
    machine.join(new_id="b", session_ms=100_000, rebalance_ms=5_000)
    machine.end_round()
    machine.leave("b")
    machine.advance(90)
    assert machine.state is State.PREPARING_REBALANCE
    machine.advance(20)
    assert machine.state is State.EMPTY


def test_a_static_member_may_leave_by_its_instance_id_alone() -> None:
    machine = static_leader()
    replies = machine.leave(Leaver("", "i"), Leaver("", "nobody"), Leaver("", None))
    assert [r.error for r in replies] == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    assert list(machine.group.roster.members) == ["b"]
