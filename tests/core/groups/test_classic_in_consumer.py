"""core.groups.classic_in_consumer and migration: members of both protocols in one group (cases 48 and 49)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from core.errors import BrokerError, ErrorCode
from core.groups.classic_in_consumer import ClassicInConsumer
from core.groups.group import Group
from core.protocol.consumer_protocol import Assignment, encode_assignment
from core.types import TopicPartition
from core.vocabulary.consumer_groups import ConsumerGroupState, MemberKind
from core.vocabulary.groups import Commit, CommitRequest, Leaver, State
from core.vocabulary.member_metadata import assignment_of
from tests.core.groups.consumer_machine import ConsumerMachine, T, catalog, numbers, of_sync, subscription
from tests.core.groups.machine import Machine as ClassicMachine
from tests.core.groups.machine import stable

ALL = [("t", number) for number in range(6)]


def mixed() -> ConsumerMachine:
    """A group with a member `c` of the consumer protocol and `k` of the classic one, both stable."""
    m = ConsumerMachine()
    m.join("c")
    joined = m.classic_join("k")
    assert (joined.error, joined.generation, joined.protocol) == (ErrorCode.NONE, 2, "cooperative-sticky")
    assert of_sync(m.sync("k", 2)) == []
    m.beat("c", 1)
    m.beat("c", 1, owned={T: [0, 1, 2]})
    assert m.heartbeat("k", 2) is ErrorCode.REBALANCE_IN_PROGRESS
    assert m.classic_join("k").generation == 2
    assert of_sync(m.sync("k", 2)) == [3, 4, 5]
    assert m.heartbeat("k", 2) is ErrorCode.NONE
    assert m.group.state is ConsumerGroupState.STABLE
    return m


def test_members_of_both_protocols_share_the_partitions() -> None:
    m = mixed()
    kinds = [member.kind for member in m.group.described().members]
    assert kinds == [MemberKind.CONSUMER, MemberKind.CLASSIC]


def test_a_cooperative_member_gives_up_what_the_sync_does_not_show() -> None:
    m = mixed()
    m.join("d")
    assert m.heartbeat("k", 2) is ErrorCode.REBALANCE_IN_PROGRESS
    told = m.classic_join("k", owned=[("t", 3), ("t", 4), ("t", 5)])
    assert told.generation == 2
    kept = of_sync(m.sync("k", 2))
    assert len(kept) == 2
    assert m.heartbeat("k", 2) is ErrorCode.REBALANCE_IN_PROGRESS
    after = m.classic_join("k", owned=[("t", number) for number in kept])
    assert after.generation == 3
    assert of_sync(m.sync("k", 3)) == kept


def test_an_eager_member_gives_up_everything_with_its_join() -> None:
    m = mixed()
    m.join("d")
    told = m.classic_join("k")
    assert told.generation == 3
    assert len(of_sync(m.sync("k", 3))) == 2


def test_generations_and_members_that_are_wrong() -> None:
    m = mixed()
    assert m.heartbeat("k", 1) is ErrorCode.ILLEGAL_GENERATION
    assert m.heartbeat("x", 2) is ErrorCode.UNKNOWN_MEMBER_ID
    assert m.heartbeat("c", 2) is ErrorCode.UNKNOWN_MEMBER_ID
    assert m.sync("k", 1).error is ErrorCode.ILLEGAL_GENERATION
    assert m.beat("k", 2).error is ErrorCode.FENCED_MEMBER_EPOCH
    assert m.classic_join("", protocol="other").error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    m.join("d")
    assert m.sync("k", 2).error is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_member_id_is_given_where_the_version_requires_it() -> None:
    m = mixed()
    told = m.classic_join("", new_id="n", member_id_required=True)
    assert (told.error, told.member_id) == (ErrorCode.MEMBER_ID_REQUIRED, "n")
    assert m.classic_join("n").error is ErrorCode.NONE


def test_a_member_that_does_not_join_or_sync_in_time_is_removed() -> None:
    m = mixed()
    m.join("d")
    assert m.heartbeat("k", 2) is ErrorCode.REBALANCE_IN_PROGRESS
    for _ in range(12):
        m.advance(5.0)
        m.heartbeat("k", 2)
        for member in ("c", "d"):
            m.beat(member, m.group.roster.members[member].epoch, owned={})
    assert "k" not in m.group.roster.members
    m.classic_join("", new_id="l")
    for _ in range(11):
        m.advance(5.0)
        m.heartbeat("l", m.group.roster.members["l"].epoch)
        m.beat("c", m.group.roster.members["c"].epoch, owned={})
    assert "l" in m.group.roster.members
    m.advance(5.0)
    assert "l" not in m.group.roster.members


def test_a_static_member_moves_from_one_protocol_to_the_other_and_keeps_its_partitions() -> None:
    m = ConsumerMachine()
    m.join("a", instance="i")
    m.join("z", topics=[])
    joined = m.classic_join("", new_id="a2", instance="i")
    assert joined.error is ErrorCode.NONE
    assert of_sync(m.sync("a2", joined.generation, "i")) == [0, 1, 2, 3, 4, 5]
    back = m.join("a3", instance="i")
    assert numbers(back.assignment) == [0, 1, 2, 3, 4, 5]
    assert m.heartbeat("a2", joined.generation) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_leave_of_members_and_of_instances() -> None:
    m = mixed()
    m.join("s", instance="i")
    replies = m.leave(Leaver("k"), Leaver("c"), Leaver("", "i"), Leaver("", "none"))
    assert [reply.error for reply in replies] == [
        ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID,
    ]  # fmt: skip
    assert list(m.group.roster.members) == ["c"]


# --- offsets (case 48) -------------------------------------------------------------------------------------------


def commit(m: ConsumerMachine, member_id: str, epoch: int, *partitions: int) -> ErrorCode | list[ErrorCode]:
    request = CommitRequest([Commit("t", number, 1) for number in partitions or (0,)], member_id, epoch)
    return m.group.check_commit(request, m.now)


def test_a_commit_needs_the_members_epoch() -> None:
    m = mixed()
    assert commit(m, "", -1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(m, "c", 2) is ErrorCode.NONE
    assert commit(m, "c", 3) is ErrorCode.STALE_MEMBER_EPOCH
    assert commit(m, "c", -1) is ErrorCode.STALE_MEMBER_EPOCH
    assert commit(m, "k", 2) is ErrorCode.NONE
    assert commit(m, "k", 1) is ErrorCode.ILLEGAL_GENERATION
    assert commit(m, "x", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(ConsumerMachine(), "", -1) is ErrorCode.NONE
    static = CommitRequest([Commit("t", 0, 1)], "c", 2, "i")
    assert m.group.check_commit(static, m.now) is ErrorCode.UNKNOWN_MEMBER_ID


def test_an_older_epoch_commits_what_the_member_has_had_since_then() -> None:
    m = mixed()
    assert commit(m, "c", 1, 0, 3) == [ErrorCode.NONE, ErrorCode.STALE_MEMBER_EPOCH]
    m.leave(Leaver("k"))
    m.beat("c", 2)
    assert m.owns("c") == [0, 1, 2, 3, 4, 5]
    # Partition 3 came in epoch 3, so that what was read of it before belongs to another owner.
    assert commit(m, "c", 2, 0, 3) == [ErrorCode.NONE, ErrorCode.STALE_MEMBER_EPOCH]
    m.join("d")
    m.beat("c", 3)
    # Being revoked, but still the member's.
    assert commit(m, "c", 2, 2, 5) == [ErrorCode.NONE, ErrorCode.STALE_MEMBER_EPOCH]
    assert commit(m, "c", 3, 5) is ErrorCode.NONE
    m.beat("c", 3, owned={T: [0, 1, 2]})
    assert commit(m, "c", 3, 5) == [ErrorCode.STALE_MEMBER_EPOCH]


def test_transactions_and_fetches() -> None:
    m = mixed()
    one = [Commit("t", 3, 1)]
    assert m.group.check_staged(CommitRequest(one)) is ErrorCode.NONE
    assert m.group.check_staged(CommitRequest(one, "c", 2)) is ErrorCode.NONE
    assert m.group.check_staged(CommitRequest(one, "c", 1)) == [ErrorCode.ILLEGAL_GENERATION]
    assert m.group.check_staged(CommitRequest(one, "c", 7)) is ErrorCode.ILLEGAL_GENERATION
    assert m.group.check_fetch(None, -1) is ErrorCode.NONE
    assert m.group.check_fetch("c", 2) is ErrorCode.NONE
    assert m.group.check_fetch("c", 1) is ErrorCode.STALE_MEMBER_EPOCH
    assert m.group.check_fetch("k", 1) is ErrorCode.ILLEGAL_GENERATION
    assert m.group.check_fetch("x", 1) is ErrorCode.UNKNOWN_MEMBER_ID


# --- upgrade and downgrade (case 49) ---------------------------------------------------------------------------


def classic_group(protocol: str = "range") -> ClassicMachine:
    """A stable classic group of two members with three partitions each."""
    c = stable("a", "b")
    for index, member in enumerate(c.group.roster.members.values()):
        member.assignment = assignment_of(TopicPartition("t", 3 * index + n) for n in range(3))
        member.protocols = ((protocol, subscription(["t"])),)
    c.group.protocol = protocol
    return c


def test_a_classic_group_becomes_a_consumer_group_and_its_members_keep_their_partitions() -> None:
    c, m = classic_group(), ConsumerMachine()
    first, second = c.group.roster.members
    m.machine = m.upgrade(c.group)
    assert m.group.epoch == c.group.generation
    assert (m.owns(first), m.owns(second)) == ([0, 1, 2], [3, 4, 5])
    assert m.join("new").member_epoch == c.group.generation + 1
    assert m.group.assignor == "range"
    change = m.disk.group
    assert change is not None
    assert set(m.disk.members) == {first, second, "new"}
    assert m.heartbeat(first, c.group.generation) is ErrorCode.REBALANCE_IN_PROGRESS
    joined = m.classic_join(first, protocol="range")
    assert joined.generation == m.group.epoch
    assert len(of_sync(m.sync(first, joined.generation))) == 2


@pytest.mark.parametrize("reason", ["policy", "type", "size", "metadata", "user data", "line"])
def test_a_group_that_cannot_become_a_consumer_group_is_not_found(reason: str) -> None:
    c, m = classic_group(), ConsumerMachine()
    member = next(iter(c.group.roster.members.values()))
    if reason == "policy":
        m.settings = replace(m.settings, may_upgrade=False)
    elif reason == "type":
        c.group.protocol_type = "connect"
    elif reason == "line":
        member.client_host = "line:/127.0.0.1"
    elif reason == "size":
        m.settings = replace(m.settings, max_size=2)
    elif reason == "metadata":
        member.protocols = (("range", b"x"),)
    else:
        member.assignment = encode_assignment(Assignment([], b"mine"))
    with pytest.raises(BrokerError) as refused:
        m.upgrade(c.group)
    assert refused.value.code is ErrorCode.GROUP_ID_NOT_FOUND
    assert c.group.state is State.STABLE


def test_an_empty_group_may_change_its_type_whatever_the_policy() -> None:
    m = ConsumerMachine()
    m.settings = replace(m.settings, may_upgrade=False)
    c = ClassicMachine()
    assert m.upgrade(c.group).is_empty


def test_the_group_becomes_classic_when_its_last_consumer_member_leaves() -> None:
    m = mixed()
    epoch = m.group.epoch
    m.beat("c", -1)
    group = m.machine
    assert isinstance(group, Group)
    assert (group.state, group.generation, group.protocol) == (
        State.PREPARING_REBALANCE, epoch + 1, "cooperative-sticky",
    )  # fmt: skip
    assert list(group.roster.members) == ["k"]
    assert m.disk.group is None
    assert list(m.disk.classic_members) == ["k"]
    m.restart()
    assert isinstance(m.machine, Group)
    assert m.machine.heartbeat("k", epoch + 1, m.now) is ErrorCode.REBALANCE_IN_PROGRESS


def test_also_when_its_session_ends() -> None:
    m = mixed()
    for _ in range(10):
        m.advance(4.9)
        if isinstance(m.machine, Group):
            break
        m.heartbeat("k", m.group.roster.members["k"].epoch)
    assert isinstance(m.machine, Group)


def test_without_the_policy_it_stays_a_consumer_group() -> None:
    m = mixed()
    m.group.settings = replace(m.settings, may_downgrade=False)
    m.beat("c", -1)
    assert m.group.roster.classic == 1
    # Its members continue.
    assert m.classic_join("k").error is ErrorCode.NONE


@pytest.mark.parametrize("upgrade", [True, False])
def test_without_the_policy_no_member_of_the_classic_protocol_comes_into_a_consumer_group(
    upgrade: bool,
) -> None:
    m = ConsumerMachine(may_downgrade=False, may_upgrade=upgrade)
    assert m.classic_join("k").error is ErrorCode.UNKNOWN_MEMBER_ID
    m.join("c")
    assert m.classic_join("").error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert m.classic_join("k").error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert m.classic_join("c").error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert m.classic_join("", instance="i").error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert list(m.group.roster.members) == ["c"]


def test_while_an_upgrade_is_under_way_clients_of_the_classic_protocol_may_restart() -> None:
    m = mixed()
    m.group.settings = replace(m.settings, may_downgrade=False)
    assert m.classic_join("l").error is ErrorCode.NONE
    m.group.settings = replace(m.settings, may_downgrade=False, may_upgrade=False)
    assert m.classic_join("n").error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert m.classic_join("l").error is ErrorCode.NONE


def test_a_member_that_joins_by_the_consumer_protocol_under_its_id_has_no_deadline_of_the_classic_one() -> (
    None
):
    m = mixed()
    m.classic_join("k", owned=[("t", 3), ("t", 4), ("t", 5)])
    assert m.group.roster.members["k"].rebalance_deadline < float("inf")
    m.join("k")
    assert m.group.roster.members["k"].rebalance_deadline == float("inf")


def test_members_of_both_protocols_survive_a_restart() -> None:
    m = mixed()
    m.restart()
    assert m.group.state is ConsumerGroupState.STABLE
    assert m.heartbeat("k", 2) is ErrorCode.NONE
    assert m.beat("c", 2).error is ErrorCode.NONE


def test_standing_is_what_hosted_members_need() -> None:
    m = mixed()
    assert ClassicInConsumer(m.group).standing("k")[:3] == (True, True, 2)
    assert ClassicInConsumer(m.group).standing("c").known is False
    m.join("d")
    assert ClassicInConsumer(m.group).standing("k").stable is False


def test_topics_that_are_deleted_are_left_out_of_a_sync() -> None:
    m = mixed()
    m.change(catalog(u=1))
    told = m.classic_join("k", owned=[("t", 3)])
    assert of_sync(m.sync("k", told.generation)) == []
