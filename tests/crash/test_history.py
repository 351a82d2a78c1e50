"""The checker of histories: a good one passes, and each anomaly is called by its name."""

from __future__ import annotations

from tests.crash.history import History, Place, check, unseen

PARTITION = ("t", 0)


def log(*values: bytes) -> dict[Place, bytes]:
    return {("t", 0, offset): value for offset, value in enumerate(values)}


def anomalies(history: History, *values: bytes) -> set[str]:
    found = check(history, log(*values), once={"t"}, ordered={"t"})
    return {one.partition(":")[0] for one in found}


def history(*offsets: int, confirmed: int = 0, attempted: int = 0) -> History:
    one = History()
    one.try_commit("g", PARTITION, attempted)
    if confirmed:
        one.commit("g", PARTITION, confirmed)
    session = one.begin("r", "g", PARTITION)
    for offset in offsets:
        one.poll(session, offset, b"v-%d" % offset)
    return one


VALUES = [b"v-%d" % i for i in range(5)]


def test_a_good_history_has_no_anomalies() -> None:
    good = history(2, 3, 4, confirmed=1, attempted=2)
    good.acknowledge(("t", 0, 1), b"v-1")
    good.own("g", 1, PARTITION, "a")
    good.own("g", 2, PARTITION, "b")
    assert anomalies(good, *VALUES) == set()


def test_a_write_that_is_lost_or_another_one_is_seen() -> None:
    one = History()
    one.acknowledge(("t", 0, 9), b"v-9")
    assert anomalies(one, *VALUES) == {"lost write"}
    one = History()
    one.acknowledge(("t", 0, 1), b"v-7")
    assert anomalies(one, *VALUES) == {"inconsistent offset"}
    one = History()
    one.acknowledge(("t", 0, 1), b"v-1")
    one.acknowledge(("t", 0, 1), b"v-2")
    assert anomalies(one, *VALUES) == {"inconsistent offset"}


def test_values_that_are_duplicates_or_out_of_order_are_seen() -> None:
    assert anomalies(History(), b"v-0", b"v-1", b"v-1") == {"duplicate", "reordered writes"}
    assert anomalies(History(), b"v-0", b"v-2", b"v-1") == {"reordered writes"}


def test_polls_that_go_back_or_leave_something_out_are_seen() -> None:
    assert anomalies(history(0, 1, 1), *VALUES) == {"non-monotonic poll"}
    assert anomalies(history(0, 1, 3), *VALUES) == {"poll skip"}
    assert anomalies(history(0, 1), b"v-0", b"v-5") == {"inconsistent offset"}


def test_owners_that_begin_at_a_wrong_place_are_seen() -> None:
    assert anomalies(history(1, 2, confirmed=2, attempted=2), *VALUES) == {"lost commit"}
    assert anomalies(history(3, 4, confirmed=1, attempted=2), *VALUES) == {"commit from nowhere"}


def test_two_owners_in_one_generation_are_seen() -> None:
    one = History()
    one.own("g", 4, PARTITION, "a")
    one.own("g", 4, PARTITION, "b")
    assert anomalies(one) == {"two owners"}


def test_what_a_group_was_never_given_is_unseen() -> None:
    one = history(0, 1)
    for offset in range(3):
        one.acknowledge(("t", 0, offset), b"v-%d" % offset)
    assert unseen(one, {"g": ["other"]}) == []
    assert unseen(one, {"g": ["t"]}) == ["unseen: ('t', 0, 2) was never handed out to g"]
    assert len(unseen(one, {"g": ["t"], "h": ["t"]})) == 4
