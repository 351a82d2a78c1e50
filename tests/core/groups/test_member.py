"""One member: what it says for a protocol, when its deadline counts, what of it is kept."""

from __future__ import annotations

from core.groups.member import Member
from core.vocabulary.groups import JoinRequest

REQUEST = JoinRequest("", "consumer", (("a", b"A"), ("b", b"B")), 10_000, 60_000, "client", "/h", "i")


def test_a_member_answers_for_the_protocols_it_offered() -> None:
    member = Member("m", REQUEST, 5.0)
    assert (member.metadata("b"), member.metadata("c"), member.metadata(None)) == (b"B", b"", b"")
    assert tuple(member.joined("a")) == ("m", "i", b"A")


def test_the_view_of_a_member_hides_what_no_protocol_was_elected_for() -> None:
    member = Member("m", REQUEST, 5.0)
    member.assignment = b"mine"
    assert tuple(member.view("a")) == ("m", "i", "client", "/h", b"A", b"mine")
    assert tuple(member.view(None)) == ("m", "i", "client", "/h", b"", b"")


def test_the_deadline_counts_for_new_members_and_for_members_that_wait_for_nothing() -> None:
    member = Member("m", REQUEST, 5.0)
    member.join_waiter = object()
    assert member.is_waiting and member.can_expire
    member.is_new = False
    assert not member.can_expire
    member.join_waiter = None
    assert member.can_expire
    member.sync_waiter = object()
    assert not member.can_expire


def test_a_member_that_was_kept_is_the_same_with_a_whole_session_ahead() -> None:
    member = Member("m", REQUEST, 5.0)
    member.assignment = b"mine"
    again = Member.restored(member.stored("g"), "consumer", 100.0)
    assert again.stored("g") == member.stored("g")
    assert (again.deadline, again.is_new, again.id_told, again.session_timeout) == (110.0, False, True, 10.0)


def test_an_update_takes_protocols_and_timeouts_and_keeps_the_rest() -> None:
    member = Member("m", REQUEST, 5.0)
    member.update(JoinRequest("m", "consumer", (("c", b"C"),), 6_000, 7_000, "other", "/o"))
    assert (member.metadata("c"), member.session_timeout, member.rebalance_timeout_ms) == (b"C", 6.0, 7_000)
    assert (member.client_id, member.group_instance_id) == ("client", "i")
