"""core.transactions.transaction: every cell of Kafka's tables for the end of a transaction, and epochs."""

from __future__ import annotations

import pytest

from core.errors import BrokerError, ErrorCode
from core.transactions.transaction import Decision, Transaction
from core.vocabulary.transactions import MAX_EPOCH, NO_PRODUCER, Outcome, ProducerIdAndEpoch, TransactionState

EMPTY, ONGOING = TransactionState.EMPTY, TransactionState.ONGOING
COMMITTED, ABORTED = TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT
CURRENT, BEFORE = ProducerIdAndEpoch(7, 5), ProducerIdAndEpoch(7, 4)
FENCED, WRONG_STATE = ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_TXN_STATE


def transaction(state: TransactionState, producer: ProducerIdAndEpoch = CURRENT) -> Transaction:
    return Transaction("t", producer, 1_000, BEFORE, state)


def outcome(one: Transaction, producer: ProducerIdAndEpoch, *, commit: bool, raises: bool) -> object:
    """What the end answers: an error code, "retry", or the decision."""
    try:
        return one.end(producer, commit=commit, raises=raises) or "retry"
    except BrokerError as error:
        return error.code


# From Kafka 4.1's TransactionCoordinator: the epoch before the last raise, then the current one.
SECOND_KIND = [
    (EMPTY, True, FENCED, WRONG_STATE),
    (EMPTY, False, FENCED, "raised"),
    (ONGOING, True, FENCED, "raised"),
    (ONGOING, False, FENCED, "raised"),
    (COMMITTED, True, "retry", WRONG_STATE),
    (COMMITTED, False, WRONG_STATE, "raised"),
    (ABORTED, True, WRONG_STATE, WRONG_STATE),
    (ABORTED, False, "retry", "raised"),
]


@pytest.mark.parametrize(("state", "commit", "before", "current"), SECOND_KIND)
def test_an_end_that_raises_the_epoch(
    state: TransactionState, commit: bool, before: object, current: object
) -> None:
    assert outcome(transaction(state), BEFORE, commit=commit, raises=True) == before
    got = outcome(transaction(state), CURRENT, commit=commit, raises=True)
    if current == "raised":
        assert got == Decision(commit, CURRENT, 6, ProducerIdAndEpoch(7, 6), CURRENT)
    else:
        assert got == current


FIRST_KIND = [
    (EMPTY, True, WRONG_STATE),
    (EMPTY, False, WRONG_STATE),
    (ONGOING, True, "same"),
    (ONGOING, False, "same"),
    (COMMITTED, True, "retry"),
    (COMMITTED, False, WRONG_STATE),
    (ABORTED, True, WRONG_STATE),
    (ABORTED, False, "retry"),
]


@pytest.mark.parametrize(("state", "commit", "current"), FIRST_KIND)
def test_an_end_that_leaves_the_epoch(state: TransactionState, commit: bool, current: object) -> None:
    assert outcome(transaction(state), BEFORE, commit=commit, raises=False) is FENCED
    got = outcome(transaction(state), CURRENT, commit=commit, raises=False)
    if current == "same":
        assert got == Decision(commit, CURRENT, 5, CURRENT, BEFORE)
    else:
        assert got == current


@pytest.mark.parametrize("raises", [False, True])
@pytest.mark.parametrize("state", [EMPTY, ONGOING, COMMITTED, ABORTED])
def test_another_producer_ends_nothing(state: TransactionState, raises: bool) -> None:
    for stranger, code in (
        (ProducerIdAndEpoch(8, 5), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (ProducerIdAndEpoch(7, 6), FENCED),
        (ProducerIdAndEpoch(7, 3), FENCED),
        (ProducerIdAndEpoch(7, 32_767), FENCED),
    ):
        assert outcome(transaction(state), stranger, commit=True, raises=raises) is code


def test_a_repeated_end_is_known_over_an_exhausted_epoch() -> None:
    last = ProducerIdAndEpoch(7, MAX_EPOCH)
    one = transaction(ONGOING, last)
    decision = one.end(last, commit=True, raises=True, new_id=9)
    assert decision == Decision(True, last, 32_767, ProducerIdAndEpoch(9, 0), last)
    one.prepare(decision)
    one.complete(decision)
    assert outcome(one, last, commit=True, raises=True) == "retry"
    assert one.producer == (9, 0)


def test_a_fenced_transaction_is_aborted_by_the_coordinator_alone() -> None:
    one = transaction(ONGOING)
    decision = one.fence(-1)
    after = ProducerIdAndEpoch(7, 6)
    assert decision == Decision(False, CURRENT, 6, after, CURRENT, Outcome.TIMED_OUT)
    one.prepare(decision)
    one.complete(decision)
    assert outcome(one, CURRENT, commit=True, raises=False) is FENCED
    assert outcome(one, CURRENT, commit=False, raises=False) is FENCED
    # As a Kafka 4.1 answers: the abort has been, and a commit cannot be.
    assert outcome(one, CURRENT, commit=True, raises=True) is WRONG_STATE
    assert outcome(one, CURRENT, commit=False, raises=True) == "retry"
    # The client may continue, unless another one has begun meanwhile.
    assert one.repeats_init(CURRENT)
    one.initialize(NO_PRODUCER, 1_000, -1, raised=True)
    with pytest.raises(BrokerError):
        one.repeats_init(CURRENT)


def test_init_tells_a_retry_from_a_newer_producer() -> None:
    one = transaction(COMMITTED)
    assert one.repeats_init(BEFORE)
    assert not one.repeats_init(CURRENT)
    assert not one.repeats_init(NO_PRODUCER)
    for stranger in (ProducerIdAndEpoch(7, 3), ProducerIdAndEpoch(7, 6), ProducerIdAndEpoch(8, 5)):
        with pytest.raises(BrokerError) as refusal:
            one.repeats_init(stranger)
        assert refusal.value.code is FENCED


def test_init_raises_the_epoch_once_and_knows_its_retry() -> None:
    one = transaction(COMMITTED)
    one.initialize(CURRENT, 2_000, -1, raised=False)
    assert (one.producer, one.previous, one.timeout_ms, one.state) == ((7, 6), CURRENT, 2_000, EMPTY)
    one.initialize(NO_PRODUCER, 1_000, -1, raised=True)
    assert (one.producer, one.previous) == ((7, 6), NO_PRODUCER)
    used_up = transaction(EMPTY, ProducerIdAndEpoch(7, MAX_EPOCH))
    used_up.initialize(NO_PRODUCER, 1_000, 11, raised=False)
    assert used_up.producer == (11, 0)


def test_an_ended_transaction_says_when_it_began() -> None:
    one = transaction(EMPTY)
    one.begin(now_ms=3_000, now=1.0)
    decision = one.end(CURRENT, commit=True, raises=True)
    assert isinstance(decision, Decision)
    one.complete(decision)
    assert one.info().start_ms == 3_000
    assert transaction(EMPTY).info().start_ms == -1
