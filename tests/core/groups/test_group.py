"""What clients may ask of a classic group, state by state, and what they get."""

from __future__ import annotations

import pytest

from core.errors import ErrorCode
from core.vocabulary.groups import NO_MEMBER, State
from tests.core.groups.machine import DELAY, SESSION_MS, Machine, stable, subscription

RANGE = (("range", subscription("t")),)
BOTH = (("sticky", subscription("t")), ("range", subscription("t")))


# --- join --------------------------------------------------------------------------------------------------


def test_a_first_member_waits_for_the_initial_delay_and_leads() -> None:
    machine = Machine()
    waiter = machine.join(new_id="a")
    assert machine.state is State.PREPARING_REBALANCE
    machine.advance(DELAY - 0.1)
    assert waiter not in machine.answers
    machine.advance(0.2)
    reply = machine.joined(waiter)
    assert (reply.error, reply.generation, reply.leader_id, reply.member_id) == (ErrorCode.NONE, 1, "a", "a")
    assert (reply.protocol_type, reply.protocol) == ("consumer", "range")
    assert [(m.member_id, m.metadata) for m in reply.members] == [("a", subscription("t"))]


def test_without_an_initial_delay_a_first_member_is_answered_at_once() -> None:
    machine = Machine(delay=0)
    assert machine.joined(machine.join()).error is ErrorCode.NONE


def test_a_member_that_comes_during_the_delay_extends_it_up_to_the_rebalance_timeout() -> None:
    machine = Machine()
    first = machine.join(rebalance_ms=8_000)
    for _ in range(2):
        machine.advance(2.9)
        machine.join(rebalance_ms=8_000)
    machine.advance(1.9)  # 7.7 s after the first
    assert first not in machine.answers
    machine.advance(0.4)  # the timeout of 8 s bounds all extensions
    assert machine.joined(first).error is ErrorCode.NONE
    assert len(machine.joined(first).members) == 3


def test_only_the_leader_is_told_the_members() -> None:
    machine = Machine()
    leader, follower = machine.join(new_id="a"), machine.join(new_id="b")
    machine.end_round()
    assert [m.member_id for m in machine.joined(leader).members] == ["a", "b"]
    assert machine.joined(follower).members == ()
    assert machine.joined(follower).leader_id == "a"


def test_a_client_that_knows_of_it_gets_its_id_first_and_joins_with_it() -> None:
    machine = Machine()
    asked = machine.joined(machine.join(new_id="a", id_required=True))
    assert (asked.error, asked.member_id) == (ErrorCode.MEMBER_ID_REQUIRED, "a")
    assert machine.state is State.EMPTY
    waiter = machine.join("a")
    machine.end_round()
    assert machine.joined(waiter).member_id == "a"


def test_an_id_without_a_join_is_forgotten_after_a_session() -> None:
    machine = Machine()
    machine.join(new_id="a", id_required=True)
    machine.advance(SESSION_MS / 1000 + 1)
    assert machine.joined(machine.join("a")).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_round_waits_for_a_pending_member_and_continues_when_it_is_forgotten() -> None:
    machine = stable("a")
    machine.join(new_id="b", id_required=True)
    assert machine.state is State.STABLE
    leader = machine.join("a")
    assert leader not in machine.answers
    machine.advance(SESSION_MS / 1000 + 0.1)
    assert machine.joined(leader).generation == 2


def test_more_pending_members_than_a_group_may_have_are_refused() -> None:
    machine = Machine(max_size=2)
    for _ in range(2):
        machine.join(id_required=True)
    refused = machine.joined(machine.join(id_required=True))
    assert (refused.error, refused.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, NO_MEMBER)


def test_an_unknown_member_id_is_refused_and_echoed() -> None:
    reply = (machine := Machine()).joined(machine.join("ghost"))
    assert (reply.error, reply.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "ghost")
    reply = (machine := stable("a")).joined(machine.join("ghost"))
    assert reply.error is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("protocol_type", "protocols"), [("consumer", ()), ("", RANGE)], ids=["no protocols", "no protocol type"]
)
def test_a_join_without_protocols_is_inconsistent(
    protocol_type: str, protocols: tuple[tuple[str, bytes], ...]
) -> None:
    machine = Machine()
    reply = machine.joined(machine.join(protocol_type=protocol_type, protocols=protocols))
    assert reply.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize(
    ("protocol_type", "name"), [("connect", "range"), ("consumer", "other")], ids=["type", "protocol"]
)
def test_a_join_that_shares_nothing_with_the_members_is_inconsistent(protocol_type: str, name: str) -> None:
    machine = stable("a")
    reply = machine.joined(machine.join(protocol_type=protocol_type, protocols=((name, b""),)))
    assert reply.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert machine.state is State.STABLE


def test_an_empty_group_takes_any_protocol_type() -> None:
    machine = stable("a")
    machine.leave("a")
    waiter = machine.join(protocol_type="connect", protocols=(("compatible", b"x"),))
    machine.end_round()
    assert machine.joined(waiter).protocol_type == "connect"
    assert machine.group.subscribed_topics is None


def test_the_protocol_is_the_one_with_most_votes_among_those_that_all_support() -> None:
    machine = Machine()
    waiter = machine.join(protocols=BOTH)
    machine.join(protocols=BOTH)
    machine.join(protocols=(("range", b""), ("sticky", b"")))
    machine.end_round()
    assert machine.joined(waiter).protocol == "sticky"
    machine = Machine()
    waiter = machine.join(protocols=BOTH)
    machine.join(protocols=RANGE)
    machine.end_round()
    assert machine.joined(waiter).protocol == "range"


def test_a_new_member_starts_a_round_that_all_others_have_to_join() -> None:
    machine = stable("a")
    new = machine.join(new_id="b")
    assert machine.state is State.PREPARING_REBALANCE
    assert machine.heartbeat("a") is ErrorCode.REBALANCE_IN_PROGRESS
    old = machine.join("a")
    assert machine.joined(old).generation == machine.joined(new).generation == 2
    assert machine.joined(old).leader_id == "a"


def test_a_member_that_does_not_join_within_the_rebalance_timeout_is_removed() -> None:
    machine = stable("a", "b", session_ms=100_000, rebalance_ms=20_000)
    waiter = machine.join("b", protocols=BOTH, session_ms=100_000, rebalance_ms=20_000)
    machine.advance(19.9)
    assert waiter not in machine.answers
    machine.advance(0.2)
    reply = machine.joined(waiter)
    assert (reply.generation, reply.leader_id, len(reply.members)) == (2, "b", 1)
    assert machine.heartbeat("a") is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_leader_that_joins_again_starts_a_round_and_a_follower_that_does_so_gets_the_same_again() -> None:
    machine = stable("a", "b")
    again = machine.joined(machine.join("b"))
    assert (again.error, again.generation, machine.state) == (ErrorCode.NONE, 1, State.STABLE)
    waiter = machine.join("a")
    assert machine.state is State.PREPARING_REBALANCE
    assert waiter not in machine.answers


def test_other_metadata_starts_a_round() -> None:
    machine = stable("a", "b")
    machine.join("b", protocols=(("range", subscription("t", "u")),))
    assert machine.state is State.PREPARING_REBALANCE


def test_before_the_sync_the_same_join_gets_the_same_again_and_another_starts_a_round() -> None:
    machine = stable("a", "b")
    machine.join("a")
    machine.join("b")
    assert machine.state is State.COMPLETING_REBALANCE
    leader = machine.joined(machine.join("a"))
    assert (leader.generation, len(leader.members)) == (2, 2)
    assert machine.joined(machine.join("b")).members == ()
    sync = machine.sync("b")
    machine.join("b", protocols=BOTH)
    assert machine.state is State.PREPARING_REBALANCE
    assert machine.synced(sync).error is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_join_that_is_repeated_takes_the_place_of_the_first() -> None:
    machine = stable("a", "b")
    first = machine.join("a")
    second = machine.join("a")
    assert machine.joined(first).error is ErrorCode.REBALANCE_IN_PROGRESS
    machine.join("b")
    assert machine.joined(second).error is ErrorCode.NONE


def test_a_full_group_takes_no_more_members() -> None:
    machine = Machine(max_size=2)
    for name in "ab":
        machine.join(new_id=name)
    refused = machine.joined(machine.join(new_id="c"))
    assert (refused.error, refused.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, NO_MEMBER)
    machine.end_round()
    assert machine.joined(machine.join(new_id="c")).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert machine.heartbeat("b") is ErrorCode.NONE


def test_a_group_that_has_become_too_large_loses_the_last_to_rejoin() -> None:
    machine = stable("a", "b", "c")
    machine.group._settings = type(machine.settings)(DELAY, 2)
    machine.join("a")
    second = machine.join("b")
    third = machine.joined(machine.join("c"))
    assert third.error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert machine.joined(second).generation == 2
    assert sorted(machine.group.roster.members) == ["a", "b"]


def test_a_new_member_whose_client_falls_silent_is_forgotten_after_five_minutes() -> None:
    machine = stable("a", session_ms=1_000_000, rebalance_ms=1_000_000)
    waiter = machine.join(new_id="b")
    machine.advance(301)
    assert machine.joined(waiter).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert machine.state is State.PREPARING_REBALANCE  # it waits for a alone


def test_a_new_member_whose_client_has_disconnected_is_removed_at_once() -> None:
    machine = stable("a")
    waiter = machine.join(new_id="b")
    machine.settle(machine.group.abandon_join(waiter, machine.moment))
    assert list(machine.group.roster.members) == ["a"]
    old = machine.join("a")
    assert machine.joined(old).generation == 2
    assert waiter not in machine.answers


def test_a_known_member_whose_client_has_disconnected_keeps_its_place_for_a_session() -> None:
    machine = stable("a", "b")
    waiter = machine.join("a")
    machine.settle(machine.group.abandon_join(waiter, machine.moment))
    other = machine.join("b")
    assert other not in machine.answers
    again = machine.join("a")
    assert machine.joined(again).generation == machine.joined(other).generation == 2


# --- sync --------------------------------------------------------------------------------------------------


def test_the_leader_says_what_each_member_gets() -> None:
    machine = Machine()
    machine.join(new_id="a")
    machine.join(new_id="b")
    machine.end_round()
    follower = machine.sync("b")
    assert follower not in machine.answers
    leader = machine.sync("a", {"a": b"A", "b": b"B", "stranger": b"S"})
    assert machine.synced(leader).assignment == b"A"
    assert machine.synced(follower).assignment == b"B"
    assert (machine.synced(leader).protocol_type, machine.synced(leader).protocol) == ("consumer", "range")
    assert machine.state is State.STABLE
    assert machine.synced(machine.sync("b")).assignment == b"B"


def test_a_member_that_the_leader_does_not_name_owns_nothing() -> None:
    machine = stable("a", "b")
    machine.join("a")
    machine.join("b")
    machine.sync("a", {"a": b"all"})
    assert machine.synced(machine.sync("b")).assignment == b""


def test_sync_is_refused_as_kafka_refuses_it() -> None:
    machine = stable("a")
    assert machine.synced(machine.sync("ghost")).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert machine.synced(machine.sync("a", generation=5)).error is ErrorCode.ILLEGAL_GENERATION
    for wrong in ({"protocol_type": "connect"}, {"protocol": "sticky"}):
        assert machine.synced(machine.sync("a", **wrong)).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    right = machine.sync("a", protocol_type="consumer", protocol="range")
    assert machine.synced(right).error is ErrorCode.NONE
    machine.join(new_id="b")
    assert machine.synced(machine.sync("a")).error is ErrorCode.REBALANCE_IN_PROGRESS
    assert (empty := Machine()).synced(empty.sync("a")).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_sync_that_is_repeated_takes_the_place_of_the_first() -> None:
    machine = stable("a", "b")
    machine.join("a")
    machine.join("b")
    first, second = machine.sync("b"), machine.sync("b")
    assert machine.synced(first).error is ErrorCode.REBALANCE_IN_PROGRESS
    machine.sync("a", {"b": b"B"})
    assert machine.synced(second).assignment == b"B"


def test_members_that_join_and_never_sync_are_removed_after_the_rebalance_timeout() -> None:
    machine = Machine()
    for name in "abc":
        machine.join(new_id=name, session_ms=100_000, rebalance_ms=20_000)
    machine.end_round()
    follower = machine.sync("b")
    machine.advance(20.1)
    assert machine.synced(follower).error is ErrorCode.REBALANCE_IN_PROGRESS
    assert list(machine.group.roster.members) == ["b"]
    assert machine.state is State.PREPARING_REBALANCE


def test_a_follower_that_does_not_fetch_its_assignment_is_removed_too() -> None:
    machine = Machine()
    for name in "ab":
        machine.join(new_id=name, session_ms=100_000, rebalance_ms=20_000)
    machine.end_round()
    machine.sync("a", {"a": b"A", "b": b"B"})
    assert machine.state is State.STABLE
    machine.advance(20.1)
    assert list(machine.group.roster.members) == ["a"]


def test_a_sync_whose_client_has_disconnected_gets_no_answer_and_the_member_stays() -> None:
    machine = stable("a", "b")
    machine.join("a")
    machine.join("b")
    waiter = machine.sync("b")
    machine.group.abandon_sync(waiter, machine.moment)
    machine.sync("a", {"b": b"B"})
    assert waiter not in machine.answers
    assert machine.synced(machine.sync("b")).assignment == b"B"


# --- heartbeat and session ---------------------------------------------------------------------------------


def test_heartbeats_keep_a_member_alive_and_silence_expires_it() -> None:
    machine = stable("a", "b")
    for _ in range(10):
        machine.advance(SESSION_MS / 1000 - 1)
        assert machine.heartbeat("a") is ErrorCode.NONE or machine.state is State.PREPARING_REBALANCE
        if machine.state is State.PREPARING_REBALANCE:
            break
    assert list(machine.group.roster.members) == ["a"]
    assert machine.heartbeat("b") is ErrorCode.UNKNOWN_MEMBER_ID


def test_heartbeats_are_never_written() -> None:
    machine = stable("a")
    writes = machine.disk.writes
    for _ in range(50):
        machine.advance(5)
        assert machine.heartbeat("a") is ErrorCode.NONE
    assert machine.disk.writes == writes


def test_heartbeat_is_refused_as_kafka_refuses_it() -> None:
    machine = stable("a")
    assert machine.heartbeat("ghost") is ErrorCode.UNKNOWN_MEMBER_ID
    assert machine.heartbeat("a", generation=2) is ErrorCode.ILLEGAL_GENERATION
    assert machine.heartbeat("a", instance="i") is ErrorCode.UNKNOWN_MEMBER_ID
    machine.join("a")
    assert machine.heartbeat("a") is ErrorCode.NONE  # between join and sync a member may already send them


def test_a_member_does_not_expire_while_its_join_or_sync_waits() -> None:
    machine = stable("a", "b", session_ms=SESSION_MS, rebalance_ms=100_000)
    waiter = machine.join("a", rebalance_ms=100_000)
    for _ in range(9):
        machine.advance(9)
        machine.heartbeat("b")
    assert waiter not in machine.answers
    machine.join("b", rebalance_ms=100_000)
    assert machine.joined(waiter).generation == 2
    sync = machine.sync("b")
    for _ in range(9):
        machine.advance(9)
        machine.heartbeat("a")
    assert "b" in machine.group.roster.members
    machine.sync("a", {"b": b"B"})
    assert machine.synced(sync).error is ErrorCode.NONE


def test_a_pause_of_the_broker_expires_no_member() -> None:
    machine = stable("a")
    machine.now = machine.group.wake_at + 3_600
    machine.group.resume(machine.now, 3_600)
    machine.settle(machine.group.tick(machine.moment))
    assert machine.heartbeat("a") is ErrorCode.NONE


# --- commit ------------------------------------------------------------------------------------------------


def test_a_commit_is_judged_by_state_member_and_generation() -> None:
    machine = Machine()
    assert machine.commit(NO_MEMBER, -1) is ErrorCode.NONE
    assert machine.commit("ghost", 3) is ErrorCode.UNKNOWN_MEMBER_ID
    machine = stable("a")
    assert machine.commit("a") is ErrorCode.NONE
    assert machine.commit(NO_MEMBER, -1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert machine.commit("ghost") is ErrorCode.UNKNOWN_MEMBER_ID
    assert machine.commit("a", 2) is ErrorCode.ILLEGAL_GENERATION
    assert machine.commit("a", -1) is ErrorCode.ILLEGAL_GENERATION
    machine.join(new_id="b")
    assert machine.commit("a") is ErrorCode.NONE  # the last chance to keep what was read
    machine.join("a")
    assert machine.commit("a") is ErrorCode.REBALANCE_IN_PROGRESS
    assert machine.commit("a", 1) is ErrorCode.ILLEGAL_GENERATION


def test_a_commit_keeps_its_member_alive() -> None:
    machine = stable("a")
    for _ in range(5):
        machine.advance(9)
        assert machine.commit("a") is ErrorCode.NONE
    assert machine.state is State.STABLE


# --- leave -------------------------------------------------------------------------------------------------


def test_a_member_that_leaves_starts_a_round_at_once() -> None:
    machine = stable("a", "b")
    assert machine.leave("a")[0].error is ErrorCode.NONE
    assert machine.state is State.PREPARING_REBALANCE
    assert machine.leave("a")[0].error is ErrorCode.UNKNOWN_MEMBER_ID
    waiter = machine.join("b")
    assert machine.joined(waiter).leader_id == "b"


def test_a_group_that_all_have_left_is_empty_in_a_new_generation() -> None:
    machine = stable("a", "b")
    replies = machine.leave("a", "b", "ghost")
    assert [r.error for r in replies] == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
    assert (machine.state, machine.group.generation) == (State.EMPTY, 2)
    assert machine.group.empty_since_ms == machine.wall_ms
    assert machine.group.protocol_type == "consumer"


def test_a_pending_member_may_leave_and_disturbs_no_other() -> None:
    machine = stable("a")
    machine.join(new_id="b", id_required=True)
    assert machine.leave("b")[0].error is ErrorCode.NONE
    assert machine.state is State.STABLE
    assert machine.leave("b")[0].error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_round_continues_when_the_pending_member_it_waits_for_leaves() -> None:
    machine = stable("a")
    machine.join(new_id="b", id_required=True)
    waiter = machine.join("a")
    machine.leave("b")
    assert machine.joined(waiter).generation == 2


def test_requests_of_a_member_that_leaves_are_answered() -> None:
    machine = stable("a", "b")
    waiter = machine.join("a")
    machine.leave("a")
    assert machine.joined(waiter).error is ErrorCode.UNKNOWN_MEMBER_ID
    machine.join("b")
    machine.sync("b", {})
    machine.join(new_id="c")
    machine.join("b")
    sync = machine.sync("c")
    machine.leave("c")
    assert machine.synced(sync).error is ErrorCode.UNKNOWN_MEMBER_ID
