"""The members of a group: leader, protocols in common, static members, and what has to be stored."""

from __future__ import annotations

from core.errors import ErrorCode
from core.groups.member import Member
from core.groups.roster import Roster
from core.vocabulary.groups import JoinRequest


def request(*protocols: str, instance: str | None = None, rebalance_ms: int = 60_000) -> JoinRequest:
    offered = tuple((name, b"") for name in protocols or ("p",))
    return JoinRequest("", "consumer", offered, 10_000, rebalance_ms, group_instance_id=instance)


def member(name: str, *protocols: str, instance: str | None = None, rebalance_ms: int = 60_000) -> Member:
    made = Member(name, request(*protocols, instance=instance, rebalance_ms=rebalance_ms), 0.0)
    made.is_new = False
    return made


def roster(*members: Member) -> Roster:
    made = Roster()
    for one in members:
        made.add(one)
    return made


def test_the_first_member_leads_and_the_next_one_when_it_leaves() -> None:
    people = roster(member("a"), member("b"))
    assert people.leader_id == "a"
    people.remove("a")
    assert people.leader_id == "b"
    people.remove("b")
    assert people.leader_id is None


def test_a_leader_is_a_member_that_has_joined() -> None:
    people = roster(member("a"), member("b"))
    assert not people.elect_joined_leader()
    people.members["b"].join_waiter = object()
    assert people.elect_joined_leader() and people.leader_id == "b"


def test_a_protocol_is_supported_when_all_support_it() -> None:
    people = roster(member("a", "x", "y"), member("b", "y", "y", "z"))
    assert people.supports(request("z", "y"))
    assert not people.supports(request("x", "z"))
    people.remove("b")
    assert people.supports(request("x"))


def test_members_vote_for_the_first_of_theirs_that_all_support_and_in_a_tie_the_earliest_wins() -> None:
    assert Roster().elect_protocol() is None
    assert roster(member("a", "x", "y"), member("b", "y", "x")).elect_protocol() == "x"
    assert roster(member("a", "x", "y"), member("b", "y", "x"), member("c", "y", "x")).elect_protocol() == "y"
    assert roster(member("a", "x", "y"), member("b", "y")).elect_protocol() == "y"


def test_an_update_counts_the_new_protocols_and_no_more_the_old() -> None:
    people = roster(member("a", "x"))
    people.update(people.members["a"], request("y"))
    assert people.supports(request("y")) and not people.supports(request("x"))


def test_members_are_known_by_member_id_and_instance_id() -> None:
    people = roster(member("a"), member("b", instance="i"))
    assert people.validate("a", None) is ErrorCode.NONE
    assert people.validate("b", "i") is ErrorCode.NONE
    assert people.validate("a", "i") is ErrorCode.FENCED_INSTANCE_ID
    assert people.validate("b", "j") is ErrorCode.UNKNOWN_MEMBER_ID
    assert people.validate("c", None) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_is_replaced_in_its_place_and_its_lead() -> None:
    old = member("a", instance="i")
    people = roster(old, member("b"))
    people.take_changes("g")
    people.replace(old, member("c", instance="i"))
    assert (people.leader_id, people.static) == ("c", {"i": "c"})
    saved, removed = people.take_changes("g")
    assert ([m.member_id for m in saved], removed) == (["c"], ("a",))


def test_a_round_may_take_as_long_as_the_most_patient_member_asks() -> None:
    assert Roster().rebalance_timeout == 0
    assert roster(member("a", rebalance_ms=5), member("b", rebalance_ms=7_000)).rebalance_timeout == 7.0


def test_all_have_joined_when_all_wait_and_none_is_pending() -> None:
    people = roster(member("a"))
    assert not people.all_joined
    people.joining = 1
    assert people.all_joined
    people.pending["b"] = 1.0
    assert not people.all_joined


def test_changes_are_handed_out_once_and_new_members_are_held_back() -> None:
    new = member("b")
    new.is_new = True
    people = roster(member("a"), new)
    assert [m.member_id for m in people.take_changes("g")[0]] == ["a"]
    assert people.take_changes("g") == ((), ())
    new.is_new = False
    assert [m.member_id for m in people.take_changes("g")[0]] == ["b"]
    people.remove("a")
    assert people.take_changes("g") == ((), ("a",))
    people.mark_all()
    assert [m.member_id for m in people.take_changes("g")[0]] == ["b"]


def test_a_member_that_leaves_before_it_was_ever_stored_leaves_no_trace() -> None:
    new = member("a")
    new.is_new = True
    people = roster(new)
    people.remove("a")
    assert people.take_changes("g") == ((), ())
