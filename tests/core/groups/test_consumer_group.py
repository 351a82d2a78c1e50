"""core.groups.consumer_group: members of the consumer protocol, rule by rule."""

from __future__ import annotations

import pytest

from core.errors import ErrorCode
from core.vocabulary.consumer_groups import ConsumerGroupState, ConsumerHeartbeat
from tests.core.groups.consumer_machine import ConsumerMachine, T, catalog, numbers, topic_id


def test_the_first_member_gets_everything_at_once() -> None:
    m = ConsumerMachine()
    reply = m.join("a")
    assert reply.error is ErrorCode.NONE
    assert (reply.member_id, reply.member_epoch, reply.heartbeat_interval_ms) == ("a", 1, 5_000)
    assert numbers(reply.assignment) == [0, 1, 2, 3, 4, 5]
    assert m.group.state is ConsumerGroupState.STABLE


def test_a_partition_moves_only_after_its_owner_has_given_it_up() -> None:
    m = ConsumerMachine()
    m.join("a")
    second = m.join("b")
    assert (second.member_epoch, numbers(second.assignment)) == (2, [])
    assert m.group.state is ConsumerGroupState.RECONCILING
    # The owner is told what it keeps, and stays in its epoch.
    told = m.beat("a", 1)
    assert (told.member_epoch, numbers(told.assignment)) == (1, [0, 1, 2])
    assert m.beat("b", 2).assignment is None
    # It still shows them.
    assert m.beat("a", 1, owned={T: [0, 1, 2, 3, 4, 5]}).member_epoch == 1
    assert m.owns("b") == []
    assert m.beat("a", 1, owned={T: [0, 1, 2]}).member_epoch == 2
    assert numbers(m.beat("b", 2).assignment) == [3, 4, 5]
    assert m.group.state is ConsumerGroupState.STABLE


def test_a_heartbeat_that_changes_nothing_writes_nothing() -> None:
    m = ConsumerMachine()
    m.join("a")
    writes = m.disk.writes
    for _ in range(3):
        reply = m.beat("a", 1, client_id="c", client_host="/h")
        assert (reply.error, reply.assignment) == (ErrorCode.NONE, None)
    assert m.disk.writes == writes


def test_a_full_request_gets_the_assignment_again() -> None:
    m = ConsumerMachine()
    m.join("a")
    full = m.beat("a", 1, topics=["t"], rebalance_timeout_ms=1_000, owned={T: [0]})
    assert numbers(full.assignment) == [0, 1, 2, 3, 4, 5]
    assert m.beat("a", 1, owned={T: range(6)}).assignment is None
    # So does a member that shows other partitions than its own: an answer may be lost.
    assert numbers(m.beat("a", 1, owned={T: [0]}).assignment) == [0, 1, 2, 3, 4, 5]


WRONG = [
    (ConsumerHeartbeat("", 1), ErrorCode.INVALID_REQUEST),
    (ConsumerHeartbeat("", 0, topics=["t"], rebalance_timeout_ms=1, owned={}), ErrorCode.INVALID_REQUEST),
    (ConsumerHeartbeat("a", -3), ErrorCode.INVALID_REQUEST),
    (ConsumerHeartbeat("a", -2), ErrorCode.INVALID_REQUEST),
    (ConsumerHeartbeat("a", 0, topics=["t"], owned={}), ErrorCode.INVALID_REQUEST),
    (ConsumerHeartbeat("a", 0, topics=["t"], rebalance_timeout_ms=1), ErrorCode.INVALID_REQUEST),
    (ConsumerHeartbeat("a", 0, topics=["t"], rebalance_timeout_ms=1, owned={T: [0]}), ErrorCode.INVALID_REQUEST),
    (ConsumerHeartbeat("a", 0, rebalance_timeout_ms=1, owned={}), ErrorCode.INVALID_REQUEST),
    (
        ConsumerHeartbeat("a", 0, "", topics=["t"], rebalance_timeout_ms=1, owned={}),
        ErrorCode.INVALID_REQUEST,
    ),
    (
        ConsumerHeartbeat("a", 0, rack_id="", topics=["t"], rebalance_timeout_ms=1, owned={}),
        ErrorCode.INVALID_REQUEST,
    ),
    (
        ConsumerHeartbeat("a", 0, assignor="mine", topics=["t"], rebalance_timeout_ms=1, owned={}),
        ErrorCode.UNSUPPORTED_ASSIGNOR,
    ),
    (
        ConsumerHeartbeat("a", 0, pattern="(", rebalance_timeout_ms=1, owned={}),
        ErrorCode.INVALID_REGULAR_EXPRESSION,
    ),
    (ConsumerHeartbeat("a", 1), ErrorCode.UNKNOWN_MEMBER_ID),
    (ConsumerHeartbeat("a", 1, "i"), ErrorCode.UNKNOWN_MEMBER_ID),
    (ConsumerHeartbeat("a", -1), ErrorCode.UNKNOWN_MEMBER_ID),
]  # fmt: skip


@pytest.mark.parametrize(("request_", "error"), WRONG, ids=range(len(WRONG)))
def test_a_wrong_request_is_refused_with_a_sentence_and_changes_nothing(
    request_: ConsumerHeartbeat, error: ErrorCode
) -> None:
    m = ConsumerMachine()
    reply, effects = m.group.beat(request_, m.moment)
    assert reply.error is error
    assert reply.message
    assert effects.change is None
    assert m.group.is_unused


def test_a_member_may_join_without_a_topic() -> None:
    m = ConsumerMachine()
    reply = m.join("a", topics=[])
    assert (reply.error, reply.member_epoch, reply.assignment) == (ErrorCode.NONE, 1, {})


def test_version_0_gets_a_member_id_of_the_broker() -> None:
    m = ConsumerMachine()
    assert m.join("", new_member_id="made").member_id == "made"
    assert m.beat("made", 1).error is ErrorCode.NONE


def test_a_full_group_refuses_new_members_only() -> None:
    m = ConsumerMachine(max_size=1)
    m.join("a")
    assert m.join("b").error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert m.join("a").error is ErrorCode.NONE


# --- fencing and lost answers (case 44) ------------------------------------------------------------------------


def test_epochs_that_are_not_the_members_are_fenced() -> None:
    m = ConsumerMachine()
    m.join("a")
    m.join("b")
    m.beat("a", 1)
    m.beat("a", 1, owned={T: [0, 1, 2]})
    assert m.beat("a", 3).error is ErrorCode.FENCED_MEMBER_EPOCH
    # The previous epoch needs the list, and no partition in it that is another's.
    assert m.beat("a", 1).error is ErrorCode.FENCED_MEMBER_EPOCH
    assert m.beat("a", 1, owned={T: [0, 1, 2, 3]}).error is ErrorCode.FENCED_MEMBER_EPOCH
    again = m.beat("a", 1, owned={T: [0, 1]})
    assert (again.error, again.member_epoch, numbers(again.assignment)) == (ErrorCode.NONE, 2, [0, 1, 2])


def test_a_join_that_is_repeated_keeps_what_the_member_has() -> None:
    m = ConsumerMachine()
    m.join("a")
    again = m.join("a")
    assert (again.member_epoch, numbers(again.assignment)) == (1, [0, 1, 2, 3, 4, 5])


def test_a_join_in_the_middle_of_a_revocation_gives_up_everything() -> None:
    m = ConsumerMachine()
    m.join("a")
    m.join("b")
    m.beat("a", 1)
    again = m.join("a")
    assert (again.member_epoch, numbers(again.assignment)) == (2, [0, 1, 2])
    assert numbers(m.beat("b", 2).assignment) == [3, 4, 5]


# --- time (case 45) ----------------------------------------------------------------------------------------------


def test_a_member_that_does_not_give_up_its_partitions_is_removed_after_its_own_timeout() -> None:
    m = ConsumerMachine(session_timeout=1_000.0)
    m.join("a", rebalance_timeout_ms=20_000)
    m.join("b")
    m.beat("a", 1)
    m.advance(19.9)
    m.beat("a", 1)
    assert "a" in m.group.roster.members
    m.advance(0.1)
    assert "a" not in m.group.roster.members
    assert m.beat("a", 1).error is ErrorCode.UNKNOWN_MEMBER_ID
    m.beat("b", 2)
    assert m.owns("b") == [0, 1, 2, 3, 4, 5]


def test_a_member_that_gives_up_its_partitions_and_dies_does_not_block_the_others() -> None:
    m = ConsumerMachine()
    m.join("a")
    m.join("b")
    m.beat("a", 1)
    m.beat("a", 1, owned={T: [0, 1, 2]})
    for _ in range(9):
        m.advance(5.0)
        m.beat("b", m.group.roster.members["b"].epoch)
    assert list(m.group.roster.members) == ["b"]
    m.beat("b", m.group.roster.members["b"].epoch)
    assert m.owns("b") == [0, 1, 2, 3, 4, 5]


def test_a_silent_member_is_removed_after_its_session_and_others_are_not() -> None:
    m = ConsumerMachine()
    m.join("a")
    m.join("b")
    m.advance(44.9)
    m.beat("b", 2)
    m.advance(0.1)
    assert list(m.group.roster.members) == ["b"]
    m.advance(45)
    assert m.group.state is ConsumerGroupState.EMPTY
    assert m.group.empty_since_ms == int(m.now * 1000) - 100


def test_a_pause_of_the_process_removes_no_member() -> None:
    m = ConsumerMachine()
    m.join("a", rebalance_timeout_ms=20_000)
    m.join("b")
    m.beat("a", 1)
    m.now += 100
    m.group.resume(m.now, 100)
    m.settle(m.group.tick(m.moment))
    assert set(m.group.roster.members) == {"a", "b"}
    m.advance(20.9)
    assert "a" in m.group.roster.members
    m.advance(0.2)
    assert "a" not in m.group.roster.members


def test_settings_that_change_hold_from_the_next_heartbeat_on() -> None:
    """Case 53."""
    m = ConsumerMachine()
    m.join("a")
    m.group.settings = m.settings = type(m.settings)(session_timeout=2.0, heartbeat_interval=7.0)
    assert m.beat("a", 1).heartbeat_interval_ms == 7_000
    m.advance(1.9)
    assert not m.group.is_empty
    # A session that is shorter than the interval of heartbeats removes the member; the setting's bounds prevent it.
    m.advance(0.2)
    assert m.group.is_empty


def test_one_target_an_interval() -> None:
    m = ConsumerMachine(interval=1.0)
    assert numbers(m.join("a").assignment) == [0, 1, 2, 3, 4, 5]
    assert m.join("b").member_epoch == 1
    assert m.join("c").member_epoch == 1
    assert m.group.state is ConsumerGroupState.ASSIGNING
    m.advance(1.0)
    assert m.group.state is ConsumerGroupState.RECONCILING
    assert m.group.target_epoch == m.group.epoch
    assert numbers(m.beat("a", 1).assignment) == [0, 1]


# --- leaving, static members (case 46) -------------------------------------------------------------------------


def test_a_member_that_leaves_frees_its_partitions() -> None:
    m = ConsumerMachine()
    m.join("a")
    m.join("b")
    assert m.beat("a", -1).member_epoch == -1
    reply = m.beat("b", 2)
    assert (reply.member_epoch, numbers(reply.assignment)) == (3, [0, 1, 2, 3, 4, 5])
    assert m.beat("b", -1).error is ErrorCode.NONE
    assert m.group.state is ConsumerGroupState.EMPTY
    assert m.group.empty_since_ms == 1_000_000


def test_an_instance_that_is_in_use_refuses_the_new_client() -> None:
    m = ConsumerMachine()
    m.join("a", instance="i")
    refused = m.join("b", instance="i")
    assert refused.error is ErrorCode.UNRELEASED_INSTANCE_ID
    assert m.beat("b", 1, group_instance_id="i").error is ErrorCode.FENCED_INSTANCE_ID
    assert m.beat("b", -1, group_instance_id="i").error is ErrorCode.FENCED_INSTANCE_ID
    # The same client may join again.
    assert m.join("a", instance="i").error is ErrorCode.NONE


def test_a_static_member_that_is_away_keeps_its_partitions_for_its_next_holder() -> None:
    m = ConsumerMachine()
    m.join("a", instance="i")
    m.join("b")
    m.beat("a", 1)
    m.beat("a", 1, owned={T: [0, 1, 2]})
    m.beat("b", 2)
    assert m.beat("a", -2, group_instance_id="i").member_epoch == -2
    assert m.beat("a", 2, group_instance_id="i").error is ErrorCode.FENCED_MEMBER_EPOCH
    epoch = m.group.epoch
    back = m.join("a2", instance="i")
    assert (back.member_epoch, numbers(back.assignment)) == (2, [0, 1, 2])
    assert m.group.epoch == epoch
    assert m.beat("a", 2, group_instance_id="i").error is ErrorCode.FENCED_INSTANCE_ID
    assert m.beat("a2", 2, group_instance_id="i").error is ErrorCode.NONE


def test_the_same_member_may_come_back() -> None:
    m = ConsumerMachine()
    m.join("a", instance="i")
    m.beat("a", -2, group_instance_id="i")
    back = m.join("a", instance="i")
    assert (back.member_epoch, numbers(back.assignment)) == (1, [0, 1, 2, 3, 4, 5])


def test_the_place_of_a_static_member_is_not_for_another_member_of_the_group() -> None:
    m = ConsumerMachine()
    m.join("a", instance="i")
    m.join("b")
    m.beat("a", 1, owned={T: [0, 1, 2]})
    m.beat("b", 2, owned={T: []})
    m.beat("a", -2, group_instance_id="i")
    # It would lose what it has, and no other member would ever get it.
    assert m.join("b", instance="i").error is ErrorCode.INVALID_REQUEST
    m.advance(46)
    m.join("c")
    m.advance(1)
    m.join("c")
    assert m.owns("c") == [0, 1, 2, 3, 4, 5]


def test_a_static_member_that_stays_away_is_removed_at_the_end_of_its_session() -> None:
    m = ConsumerMachine()
    m.join("a", instance="i")
    m.beat("a", -2, group_instance_id="i")
    m.advance(44.9)
    assert not m.group.is_empty
    m.advance(0.2)
    assert m.group.is_empty
    assert m.join("b", instance="i").error is ErrorCode.NONE


def test_a_member_that_is_away_gives_up_what_it_had_to_give_up() -> None:
    m = ConsumerMachine()
    m.join("a", instance="i")
    m.join("b")
    m.beat("a", 1)
    m.beat("a", -2, group_instance_id="i")
    assert numbers(m.beat("b", 2).assignment) == [3, 4, 5]


# --- topics and patterns (cases 47 and 50) -----------------------------------------------------------------------


def test_a_pattern_and_names_are_united() -> None:
    m = ConsumerMachine(catalog(t=1, logs_a=1, logs_b=1))
    reply = m.join("a", topics=["t", "logs_a"], pattern="logs_.*")
    assert reply.assignment == {topic_id(1): (0,), topic_id(2): (0,), topic_id(3): (0,)}
    # The empty pattern ends the subscription to it.
    assert m.beat("a", 1, pattern="").member_epoch == 1
    assert m.beat("a", 1, owned={topic_id(1): [0], topic_id(2): [0]}).member_epoch == 2


def test_a_pattern_follows_the_topics() -> None:
    m = ConsumerMachine(catalog(logs_a=1, other=1))
    assert m.join("a", pattern="logs_.").assignment == {topic_id(1): (0,)}
    m.change(catalog(logs_a=1, other=1, logs_b=1))
    told = m.beat("a", 1)
    assert (told.member_epoch, told.assignment) == (2, {topic_id(1): (0,), topic_id(3): (0,)})
    epoch = m.group.epoch
    m.change(catalog(logs_a=1, other=2, logs_b=1))
    assert m.group.epoch == epoch


def test_a_pattern_that_names_no_topic_waits_for_one() -> None:
    m = ConsumerMachine(catalog(t=1))
    assert m.join("a", pattern="x.*").assignment == {}
    m.change(catalog(t=1, xy=1))
    assert m.beat("a", 1).assignment == {topic_id(2): (0,)}


def test_a_pattern_of_exponential_time_is_no_trouble() -> None:
    m = ConsumerMachine(catalog(**{"a" * 200: 1}))
    assert m.join("a", pattern="(a+)+b").error is ErrorCode.NONE


def test_a_pattern_names_only_topics_that_the_client_may_see_also_after_a_restart() -> None:
    m = ConsumerMachine(catalog(t1=1, t2=1))
    reply = m.join("a", pattern="t.", may_describe=lambda topic: topic == "t1")
    assert reply.assignment == {topic_id(1): (0,)}
    m.restart()
    m.settle(m.group.tick(m.moment))
    assert m.group.roster.topics == {"t1"}
    told = m.beat("a", 1, may_describe=lambda topic: True)
    assert told.assignment == {topic_id(1): (0,), topic_id(2): (0,)}


def test_new_partitions_are_assigned() -> None:
    m = ConsumerMachine(catalog(t=1))
    m.join("a")
    m.change(catalog(t=3))
    reply = m.beat("a", 1)
    assert (reply.member_epoch, numbers(reply.assignment)) == (2, [0, 1, 2])


def test_a_topic_that_is_created_again_is_another_topic() -> None:
    m = ConsumerMachine(catalog(t=2))
    m.join("a")
    again = type(m.topics)([("t", topic_id(9), 2)])
    m.change(again)
    told = m.beat("a", 1)
    assert (told.member_epoch, told.assignment) == (1, {})
    told = m.beat("a", 1, owned={})
    assert (told.member_epoch, told.assignment) == (2, {topic_id(9): (0, 1)})


def test_a_topic_that_is_deleted_has_to_be_given_up() -> None:
    m = ConsumerMachine(catalog(t=2, u=1))
    m.join("a", "t", "u")
    m.change(catalog(t=2))
    assert m.beat("a", 1).assignment == {T: (0, 1)}
    assert m.beat("a", 1, owned={T: [0, 1]}).member_epoch == 2
    assert m.group.state is ConsumerGroupState.STABLE
    view = m.group.described()
    assert view.members[0].topics == ("t", "u")


# --- assignors -----------------------------------------------------------------------------------------------------


def test_the_assignor_with_the_most_votes_wins_and_a_new_one_raises_the_epoch() -> None:
    m = ConsumerMachine(catalog(t=4, u=4))
    m.join("a", "t", "u")
    assert m.group.assignor == "uniform"
    m.join("b", "t", "u", assignor="range")
    assert m.group.assignor == "range"
    m.join("c", "t", "u", assignor="uniform")
    assert m.group.assignor == "uniform"
    epoch = m.group.epoch
    m.beat("c", m.group.roster.members["c"].epoch, assignor="range")
    assert (m.group.epoch, m.group.assignor) == (epoch + 1, "range")


# --- restart (case 52) ---------------------------------------------------------------------------------------------


def test_members_continue_after_a_restart_without_a_join() -> None:
    m = ConsumerMachine()
    m.join("a")
    m.join("b")
    m.beat("a", 1)
    m.beat("a", 1, owned={T: [0, 1, 2]})
    m.beat("b", 2)
    m.restart()
    writes = m.disk.writes
    assert m.group.state is ConsumerGroupState.STABLE
    assert m.beat("a", 2, client_id="c", client_host="/h").assignment is None
    assert m.beat("b", 2, client_id="c", client_host="/h").assignment is None
    assert m.disk.writes == writes


def test_a_restart_between_target_and_reconciliation_gives_no_partition_two_owners() -> None:
    m = ConsumerMachine()
    m.join("a")
    m.join("b")
    m.beat("a", 1)
    m.restart()
    assert m.beat("b", 2).assignment in ({}, None)
    assert m.owns("b") == []
    assert m.owns("a") == [0, 1, 2]
    assert m.group.epoch > 2
    told = m.beat("a", 1, owned={T: [0, 1, 2]})
    assert told.member_epoch == m.group.epoch
    assert numbers(m.beat("b", m.group.roster.members["b"].epoch).assignment) == [3, 4, 5]


def test_topics_that_changed_while_the_broker_was_down_are_noticed() -> None:
    m = ConsumerMachine(catalog(t=2))
    m.join("a")
    m.topics = catalog(t=3)
    m.restart()
    assert numbers(m.beat("a", 1).assignment) == [0, 1, 2]


# --- life of the group -----------------------------------------------------------------------------------------


def test_a_group_with_members_is_not_deleted() -> None:
    m = ConsumerMachine()
    m.join("a")
    assert m.group.delete() is ErrorCode.NON_EMPTY_GROUP
    m.beat("a", -1)
    assert m.group.delete() is ErrorCode.NONE
    assert m.group.state is ConsumerGroupState.DEAD
    assert m.group.delete() is ErrorCode.GROUP_ID_NOT_FOUND
    assert m.join("a").error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    m.group.revive()
    assert m.join("a").error is ErrorCode.NONE


def test_views() -> None:
    m = ConsumerMachine()
    m.join("a", rack_id="r")
    m.join("b")
    view = m.group.described()
    first, second = view.members
    assert (view.state, view.group_epoch, view.assignment_epoch, view.assignor) == (
        "Reconciling",
        2,
        2,
        "uniform",
    )
    assert (first.rack_id, first.member_epoch, first.topics, first.kind) == ("r", 1, ("t",), 1)
    assert [share.partitions for share in first.assignment] == [(0, 1, 2, 3, 4, 5)]
    assert [share.partitions for share in first.target] == [(0, 1, 2)]
    assert (second.assignment, second.all_topics()) == ((), {"t"})
    assert m.group.listing() == ("g", "consumer", "Reconciling", "consumer")
    shown = m.group.view()
    assert (shown.group_type, shown.generation, len(shown.members)) == ("consumer", 2, 2)
    assert m.group.is_subscribed("t")
    assert not m.group.is_subscribed("u")
