"""A group beyond its members: deleted, described, restarted, stopped."""

from __future__ import annotations

from core.errors import ErrorCode
from core.vocabulary.groups import Leaver, State
from tests.core.groups.machine import SESSION_MS, Machine, stable, static_leader, subscription

# --- delete, describe, stop --------------------------------------------------------------------------------


def test_only_an_empty_group_can_be_deleted_and_is_dead_then() -> None:
    machine = stable("a")
    assert machine.group.delete() is ErrorCode.NON_EMPTY_GROUP
    machine.leave("a")
    assert machine.group.delete() is ErrorCode.NONE
    assert machine.state is State.DEAD
    assert machine.group.delete() is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_dead_group_answers_nothing_but_that_the_coordinator_is_not_available() -> None:
    machine = Machine()
    machine.group.delete()
    gone = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert machine.joined(machine.join()).error is gone
    assert machine.synced(machine.sync("a")).error is gone
    assert machine.heartbeat("a") is gone
    assert machine.commit("a") is gone
    assert machine.leave("a")[0].error is gone


def test_metadata_and_assignments_are_shown_only_while_the_group_is_stable() -> None:
    machine = stable("a")
    view = machine.group.view()
    assert (view.state, view.protocol_type, view.protocol) == ("Stable", "consumer", "range")
    assert view.members[0][:4] == ("a", None, "client", "/127.0.0.1")
    assert view.members[0].metadata == subscription("t") and view.members[0].assignment == b"a"
    machine.join(new_id="b")
    view = machine.group.view()
    assert (view.state, view.protocol) == ("PreparingRebalance", "")
    assert all(m.metadata == m.assignment == b"" for m in view.members)


def test_a_listing_shows_state_and_type() -> None:
    assert tuple(stable("a").group.listing()) == ("g", "consumer", "Stable", "classic")


def test_subscribed_topics_follow_the_generation() -> None:
    machine = stable("a")
    assert machine.group.is_subscribed("t") and not machine.group.is_subscribed("u")
    machine.join("a", protocols=(("range", subscription("u")),))
    assert machine.group.is_subscribed("u") and not machine.group.is_subscribed("t")
    machine.join("a", protocols=(("range", b"\0"),))
    assert machine.group.is_subscribed("t")  # unknown
    machine.leave("a")
    assert not machine.group.is_subscribed("t")


def test_when_the_broker_stops_every_waiting_member_is_answered() -> None:
    machine = stable("a", "b")
    waiter = machine.join("a")
    machine.settle(machine.group.release(ErrorCode.NOT_COORDINATOR))
    assert machine.joined(waiter).error is ErrorCode.NOT_COORDINATOR


# --- restart -----------------------------------------------------------------------------------------------


def test_after_a_restart_members_continue_without_rejoining() -> None:
    machine = static_leader().restart()
    assert (machine.state, machine.group.generation) == (State.STABLE, 1)
    assert machine.heartbeat("i-1", instance="i") is ErrorCode.NONE
    assert machine.commit("b") is ErrorCode.NONE
    assert machine.synced(machine.sync("b")).assignment == b"B"
    assert machine.group.view().members[0].client_host == "/127.0.0.1"
    assert machine.group.is_subscribed("t")
    machine.advance(SESSION_MS / 1000 + 1)
    assert machine.group.roster.members == {}


def test_a_generation_that_was_answered_is_there_after_a_restart_and_the_leader_may_sync() -> None:
    machine = stable("a", "b")
    machine.join("a")
    machine.join("b")
    machine = machine.restart()
    assert (machine.state, machine.group.generation) == (State.COMPLETING_REBALANCE, 2)
    machine.sync("a", {"b": b"new"})
    assert machine.synced(machine.sync("b")).assignment == b"new"


def test_a_member_that_left_is_still_absent_after_a_restart_and_the_round_continues() -> None:
    machine = stable("a", "b")
    machine.leave("a")
    machine = machine.restart()
    assert machine.heartbeat("a") is ErrorCode.UNKNOWN_MEMBER_ID
    assert machine.heartbeat("b") is ErrorCode.REBALANCE_IN_PROGRESS
    waiter = machine.join("b")
    assert machine.joined(waiter).generation == 2


def test_an_empty_group_is_empty_after_a_restart_and_its_generation_continues() -> None:
    machine = stable("a")
    machine.leave("a")
    since = machine.wall_ms
    machine = machine.restart()
    assert (machine.state, machine.group.empty_since_ms) == (State.EMPTY, since)
    waiter = machine.join()
    machine.end_round()
    assert machine.joined(waiter).generation == 3


def test_a_member_that_was_never_answered_is_not_kept() -> None:
    machine = stable("a", "b")
    machine.join(new_id="c")
    machine.leave("a")
    assert sorted(machine.disk.members) == ["b"]


def test_after_a_failed_write_the_next_one_carries_the_whole_group() -> None:
    machine = stable("a", "b")
    lost = machine.group.leave([Leaver("a")], machine.moment)[1]
    assert lost.change is not None
    machine.group.resave()
    machine.join("b")
    assert sorted(machine.disk.members) == ["b"]
    assert machine.disk.group is not None and machine.disk.group.generation == 2
