"""What shares a Spark session or a Kafka runs in one process; everything else by file."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.sharing_out import APART, KILLING, KILLS, LONGEST, PEERS, PIPELINE, begins_at, share_of

TESTS = Path(__file__).resolve().parent
FILES = [str(path.relative_to(TESTS.parent)) for path in sorted(TESTS.rglob("test_*.py"))]
# What a test asks for when it needs the session of tests/pipeline/conftest.py.
SESSION = re.compile(r"\bspark: SparkSession|\bjobs: Runner|\busefixtures\(.spark.\)")


@pytest.mark.parametrize(
    ("path", "share"),
    [
        ("tests/core/log/test_recovery.py", "tests/core/log/test_recovery.py"),
        ("tests/peers/test_tools.py", PEERS),
        ("tests/pipeline/source/test_stream.py", PIPELINE),
        ("tests/pipeline/jobs/test_kills.py", KILLS),
        ("tests/pipeline/test_faults.py", KILLS),
        ("tests/pipeline/command/test_init.py", "tests/pipeline/command/test_init.py"),
        ("tests/pipeline/jobs/test_lost_executor.py", "tests/pipeline/jobs/test_lost_executor.py"),
    ],
)
def test_a_share_is_a_file_or_what_is_slow_to_start(path: str, share: str) -> None:
    assert share_of(f"{path}::test_it[a::b]") == share


def test_no_process_starts_a_session_for_a_file_alone() -> None:
    with_session = [path for path in FILES if SESSION.search((TESTS.parent / path).read_text())]
    assert len(with_session) > 15
    assert {share_of(path) for path in with_session} == {KILLS, PIPELINE}


def test_every_name_is_of_a_test_that_is_there() -> None:
    for name in (*KILLING, *APART):
        assert any(path == name or path.startswith(f"{name}/") for path in FILES), name
    assert {share_of(path) for path in FILES} >= set(LONGEST)


def test_the_longest_begin_first_and_the_others_stay_in_order() -> None:
    begun = list(dict.fromkeys(share_of(path) for path in sorted(FILES, key=begins_at)))
    assert begun[: len(LONGEST)] == list(LONGEST)
    assert begun[len(LONGEST) :] == [path for path in FILES if share_of(path) == path not in LONGEST]
