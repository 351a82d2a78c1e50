"""Which shape a refusal has, and that it is counted."""

from __future__ import annotations

from collections import Counter

from app.errors import Problem, Rendered
from app.http.refusals import Refusals
from core.errors import BrokerError, ErrorCode


def test_a_path_gets_the_shape_of_its_surface_and_all_others_a_problem_document() -> None:
    counts: Counter[str] = Counter()
    own = Rendered("application/x-own", b"own")
    refusals = Refusals([("/own", lambda problem, path: own)], counts)
    assert refusals.answer(Problem("not-found", "No."), "/own/path").body == b"own"
    for path in ("/api/v1/topics", ""):
        answer = refusals.answer(BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "No."), path)
        assert (answer.status, answer.media_type) == (404, b"application/problem+json")
    assert counts == {"not-found": 1, "unknown-topic-or-partition": 2}
