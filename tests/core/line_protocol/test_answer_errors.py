"""core.line_protocol.answer_errors: which of the protocol's codes a refusal of the broker becomes."""

from __future__ import annotations

import pytest

from core.errors import BrokerError, ErrorCode
from core.line_protocol.answer_errors import code_of, refusal


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "BAD_REQUEST"),
        (ErrorCode.OFFSET_OUT_OF_RANGE, "BAD_REQUEST"),
        (ErrorCode.MESSAGE_TOO_LARGE, "BAD_REQUEST"),
        (ErrorCode.REQUEST_TIMED_OUT, "REPLICATION_TIMEOUT"),
        (ErrorCode.NOT_ENOUGH_REPLICAS, "REPLICATION_TIMEOUT"),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, "REPLICATION_TIMEOUT"),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, "NOT_LEADER"),
        (ErrorCode.LEADER_NOT_AVAILABLE, "NOT_LEADER"),
        (ErrorCode.ILLEGAL_GENERATION, "GENERATION_MISMATCH"),
        (ErrorCode.UNKNOWN_MEMBER_ID, "GENERATION_MISMATCH"),
        (ErrorCode.REBALANCE_IN_PROGRESS, "GENERATION_MISMATCH"),
        (ErrorCode.KAFKA_STORAGE_ERROR, "KAFKA_STORAGE_ERROR"),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, "COORDINATOR_NOT_AVAILABLE"),
    ],
)
def test_a_refusal_has_a_code_of_the_protocol_where_one_is_true(code: ErrorCode, expected: str) -> None:
    assert code_of(BrokerError(code, "no")) == expected


def test_the_message_says_kafkas_name_once() -> None:
    refused = BrokerError(ErrorCode.UNKNOWN_MEMBER_ID, "There is | none.")
    assert refusal(b"7", refused) == b"V1|7|ERR|GENERATION_MISMATCH|UNKNOWN_MEMBER_ID: There is   none.\n"
    broken = BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, "The disk is full.")
    assert refusal(b"7", broken) == b"V1|7|ERR|KAFKA_STORAGE_ERROR|The disk is full.\n"
