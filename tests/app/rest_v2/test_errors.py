"""Codes of refusals: every broker error has one, and those of the table are as it says."""

from __future__ import annotations

import json

import pytest

from app.errors import Problem, from_broker
from app.rest_v2.errors import as_problem, bad_config, body_of, code_of, code_of_record, render_before_routing
from core.errors import BrokerError, ErrorCode

C = ErrorCode


@pytest.mark.parametrize(
    ("codes", "status", "v2"),
    [
        ((C.UNKNOWN_TOPIC_OR_PARTITION,), 404, 40401),
        ((C.INVALID_TOPIC_EXCEPTION, C.INVALID_RECORD, C.INVALID_CONFIG, C.INVALID_PARTITIONS), 422, 40002),
        ((C.TOPIC_ALREADY_EXISTS,), 409, 40002),
        ((C.OFFSET_OUT_OF_RANGE,), 416, 50002),
        ((C.MESSAGE_TOO_LARGE, C.RECORD_LIST_TOO_LARGE), 413, 413),
        ((C.UNKNOWN_MEMBER_ID, C.GROUP_ID_NOT_FOUND), 404, 40403),
        (
            (C.ILLEGAL_GENERATION, C.REBALANCE_IN_PROGRESS, C.FENCED_INSTANCE_ID, C.NON_EMPTY_GROUP),
            409,
            40903,
        ),
        (
            (
                C.COORDINATOR_LOAD_IN_PROGRESS, C.NOT_LEADER_OR_FOLLOWER, C.LEADER_NOT_AVAILABLE,
                C.NOT_ENOUGH_REPLICAS,
            ),
            503,
            50003,
        ),
        ((C.REQUEST_TIMED_OUT,), 504, 50003),
        ((C.THROTTLING_QUOTA_EXCEEDED,), 429, 42901),
        ((C.SASL_AUTHENTICATION_FAILED, C.UNSUPPORTED_SASL_MECHANISM, C.ILLEGAL_SASL_STATE), 401, 40101),
        ((C.TOPIC_AUTHORIZATION_FAILED, C.GROUP_AUTHORIZATION_FAILED), 403, 40301),
        ((C.KAFKA_STORAGE_ERROR,), 507, 50003),
        ((C.CORRUPT_MESSAGE,), 400, 50003),
        ((C.UNKNOWN_SERVER_ERROR,), 500, 50002),
    ],
)  # fmt: skip
def test_the_table_of_codes(codes: tuple[ErrorCode, ...], status: int, v2: int) -> None:
    for code in codes:
        problem = as_problem(BrokerError(code, "why"))
        assert (problem.status, code_of(problem)) == (status, v2), code


def test_a_partition_that_is_missing_is_40402() -> None:
    error = BrokerError(C.UNKNOWN_TOPIC_OR_PARTITION, "none", topic="t", partition=7)
    assert code_of(from_broker(error)) == 40402


def test_every_broker_error_has_a_code() -> None:
    for code in ErrorCode:
        assert 400 <= code_of(as_problem(BrokerError(code, "why"))) < 60000


def test_what_is_not_of_kafka_is_told_by_its_status() -> None:
    for kind, status in [("not-found", 404), ("malformed-request", 400), ("payload-too-large", 413)]:
        assert code_of(Problem(kind, "why")) == status


def test_a_refused_record_says_whether_to_try_again() -> None:
    assert code_of_record(BrokerError(C.NOT_ENOUGH_REPLICAS, ""), (1, 2)) == 2
    assert code_of_record(BrokerError(C.INVALID_RECORD, ""), (1, 2)) == 1


def test_a_body_has_two_members() -> None:
    assert json.loads(body_of(40401, 'a "b"')) == {"error_code": 40401, "message": 'a "b"'}
    rendered = render_before_routing(Problem("unknown-host", "no"), "/topics")
    assert rendered.media_type == "application/json"
    assert json.loads(rendered.body) == {"error_code": 421, "message": "no"}
    assert (bad_config("x").status, bad_config("x").error_code) == (422, 42204)
