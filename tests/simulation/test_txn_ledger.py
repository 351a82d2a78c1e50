"""The checker of transactions: what is whole passes, and each broken promise is called by its name."""

from __future__ import annotations

import pytest

from tests.simulation.ledger import BrokenPromiseError
from tests.simulation.txn_ledger import Transactions, Written

ONE = {b"1": 0, b"2": 1}


def ledger(outcome: bool | None, *, offset: int = -1) -> Transactions:
    one = Written("one", dict(ONE), outcome, offset)
    made = Transactions([one], dict.fromkeys(ONE, one))
    if offset >= 0:
        made.staged[0] = [one]
    return made


@pytest.mark.parametrize(
    ("outcome", "seen"),
    [(True, set(ONE)), (False, set()), (None, set(ONE)), (None, set())],
    ids=["committed", "aborted", "unknown, there", "unknown, not there"],
)
def test_all_or_nothing_passes(outcome: bool | None, seen: set[bytes]) -> None:
    ledger(outcome).check_whole(seen, {"one"} if outcome else set(), "a test")


@pytest.mark.parametrize(
    ("outcome", "seen", "says"),
    [
        (True, {b"1"}, "1 of 2 records"),
        (None, {b"1"}, "1 of 2 records"),
        (True, set(), "nothing of one is there"),
        (False, set(ONE), "was aborted and is there"),
    ],
    ids=["torn", "unknown and torn", "lost", "aborted"],
)
def test_what_is_torn_lost_or_aborted_is_noticed(outcome: bool | None, seen: set[bytes], says: str) -> None:
    made = ledger(outcome)
    with pytest.raises(BrokenPromiseError, match=says):
        made.check_whole(seen, made.committed(), "a test")


def test_a_record_of_an_aborted_transaction_is_noticed_when_it_is_read() -> None:
    ledger(True).saw({b"1"}, "a test")
    with pytest.raises(BrokenPromiseError, match="of an aborted transaction was read"):
        ledger(False).saw({b"1"}, "a test")


def test_an_offset_is_committed_if_and_only_if_its_transaction_is() -> None:
    made = ledger(True, offset=0)
    made.check_offset(0, 0, {"one"}, "a test")
    made.check_offset_is_of(0, 0, set(ONE))
    made.check_offset_is_of(0, -1, set())
    with pytest.raises(BrokenPromiseError, match="and 0 was answered"):
        made.check_offset(0, -1, {"one"}, "a test")
    with pytest.raises(BrokenPromiseError, match="the records are those of"):
        made.check_offset_is_of(0, -1, set(ONE))
    with pytest.raises(BrokenPromiseError, match="the records are those of"):
        made.check_offset_is_of(0, 0, set())
    with pytest.raises(BrokenPromiseError, match="was staged by"):
        ledger(False, offset=0).check_offset(0, 0, set(), "a test")
