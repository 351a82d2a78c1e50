"""Error codes are Kafka's: numbers, names, and what may be retried."""

from __future__ import annotations

import kafka.errors
import pytest

from core.errors import BrokerError, ErrorCode

# Kafka has renamed these since kafka-python named them.
RENAMED = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.INVALID_TOPIC_EXCEPTION,
    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
}
THEIRS = {
    error.errno: error
    for error in vars(kafka.errors).values()
    if isinstance(getattr(error, "errno", None), int)
}


def test_codes_are_dense_and_unique() -> None:
    assert sorted(ErrorCode) == list(range(-1, max(ErrorCode) + 1))


@pytest.mark.parametrize(
    "code", sorted({code for code in ErrorCode if code in THEIRS and code > 0} - RENAMED)
)
def test_another_client_calls_each_code_by_the_same_name(code: ErrorCode) -> None:
    assert THEIRS[code].message == code.name


@pytest.mark.parametrize(
    ("code", "retriable"),
    [
        (ErrorCode.NONE, False),
        (ErrorCode.CORRUPT_MESSAGE, True),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, True),
        (ErrorCode.KAFKA_STORAGE_ERROR, True),
        (ErrorCode.MESSAGE_TOO_LARGE, False),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, False),
        (ErrorCode.INVALID_RECORD, False),
    ],
)
def test_what_may_be_retried_is_said(code: ErrorCode, retriable: bool) -> None:
    assert code.retriable is retriable


def test_a_refusal_carries_its_facts() -> None:
    error = BrokerError(ErrorCode.MESSAGE_TOO_LARGE, "Too large.", limit=100)
    assert str(error) == "MESSAGE_TOO_LARGE: Too large."
    assert (error.code, error.message, error.details) == (
        ErrorCode.MESSAGE_TOO_LARGE,
        "Too large.",
        {"limit": 100},
    )
