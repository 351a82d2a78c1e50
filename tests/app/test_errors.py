"""The table from broker errors to HTTP, and the problem document."""

from __future__ import annotations

import json

import pytest

from app.errors import (
    KINDS,
    PROBLEM_MEDIA_TYPE,
    STATUS_OF,
    Problem,
    from_broker,
    render_problem,
    slug_of,
)
from core.errors import BrokerError, ErrorCode


def test_every_broker_error_has_a_status() -> None:
    assert set(STATUS_OF) == set(ErrorCode)


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("UNKNOWN_TOPIC_OR_PARTITION", 404), ("INVALID_TOPIC_EXCEPTION", 422), ("INVALID_RECORD", 422),
        ("INVALID_CONFIG", 422), ("INVALID_PARTITIONS", 422), ("TOPIC_ALREADY_EXISTS", 409),
        ("MESSAGE_TOO_LARGE", 413), ("RECORD_LIST_TOO_LARGE", 413), ("UNKNOWN_MEMBER_ID", 404),
        ("GROUP_ID_NOT_FOUND", 404), ("ILLEGAL_GENERATION", 409), ("REBALANCE_IN_PROGRESS", 409),
        ("FENCED_INSTANCE_ID", 409), ("NON_EMPTY_GROUP", 409), ("COORDINATOR_LOAD_IN_PROGRESS", 503),
        ("NOT_LEADER_OR_FOLLOWER", 503), ("LEADER_NOT_AVAILABLE", 503), ("NOT_ENOUGH_REPLICAS", 503),
        ("REQUEST_TIMED_OUT", 504), ("THROTTLING_QUOTA_EXCEEDED", 429), ("SASL_AUTHENTICATION_FAILED", 401),
        ("TOPIC_AUTHORIZATION_FAILED", 403), ("GROUP_AUTHORIZATION_FAILED", 403), ("KAFKA_STORAGE_ERROR", 507),
    ],
)  # fmt: skip
def test_a_broker_error_has_the_status_of_the_design(code: str, status: int) -> None:
    problem = from_broker(BrokerError(ErrorCode[code], "Because."))
    assert problem.status == status
    assert ("retry-after" in problem.headers) is (status in (429, 503))


@pytest.mark.parametrize(("offset", "status"), [(4, 410), (11, 416)])
def test_an_offset_below_the_start_is_deleted_and_one_above_the_end_may_come(
    offset: int, status: int
) -> None:
    error = BrokerError(ErrorCode.OFFSET_OUT_OF_RANGE, "Out.", log_start_offset=5, high_watermark=10)
    problem = from_broker(error, offset=offset)
    assert problem.status == status
    assert problem.extra == {"log_start_offset": 5, "high_watermark": 10}


def test_a_problem_is_rendered_as_rfc_9457_asks() -> None:
    error = BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "There is no topic 't'.", topic="t")
    rendered = render_problem(from_broker(error), "/api/v1/topics/t")
    assert rendered.media_type == PROBLEM_MEDIA_TYPE
    assert json.loads(rendered.body) == {
        "type": "/problems/unknown-topic-or-partition",
        "title": "Unknown topic or partition",
        "status": 404,
        "detail": "There is no topic 't'.",
        "instance": "/api/v1/topics/t",
        "kafka_error": "UNKNOWN_TOPIC_OR_PARTITION",
        "kafka_error_code": 3,
        "retriable": True,
        "topic": "t",
    }


def test_errors_of_single_records_are_listed() -> None:
    error = BrokerError(ErrorCode.INVALID_RECORD, "Two.", record_errors=[(0, "No key."), (3, "No key.")])
    assert from_broker(error).errors == [
        {"detail": "No key.", "pointer": "#/records/0", "record": 0},
        {"detail": "No key.", "pointer": "#/records/3", "record": 3},
    ]


def test_more_members_never_replace_those_of_the_standard() -> None:
    problem = Problem("not-found", "Nothing.", extra={"status": 200, "type": "x", "limit": 3})
    members = problem.members()
    assert (members["status"], members["type"], members["limit"]) == (404, "/problems/not-found", 3)


def test_details_that_are_no_json_do_not_break_the_answer() -> None:
    error = BrokerError(ErrorCode.INVALID_RECORD, "Bad.", where=object())
    assert json.loads(render_problem(from_broker(error), "/").body)["detail"] == "Bad."


def test_no_two_problems_share_a_type() -> None:
    unnamed = (ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR)
    slugs = [slug_of(code) for code in ErrorCode if code not in unnamed]
    assert len(set(slugs)) == len(slugs)
    assert not set(slugs) & set(KINDS)
