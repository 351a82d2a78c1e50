"""Jobs as process groups that are killed again and again, and not one row lost or twice.

The short form of `python -m tests.torture spark_kills`; tests/pipeline/kills.py describes the rounds.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.pipeline.jobs.running import Runner
from tests.pipeline.kills import kills
from tests.pipeline.topics import Topics
from tests.pipeline.victims import SINKS, Export

pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::UserWarning", "ignore::ResourceWarning"
)
# A start costs some ten seconds: the other tables, which die inside the process in test_table.py, get one kill each.
ROUNDS = {"parquet": 3, "delta": 1, "iceberg": 1, "replay": 1}


@pytest.mark.client("java")
@pytest.mark.timeout((max(ROUNDS.values()) + 2) * 240)
@pytest.mark.parametrize("sink", list(ROUNDS))
def test_killed_at_random_moments_not_one_row_is_lost_or_twice(
    sink: str, jobs: Runner, topics: Topics, tmp_path: Path
) -> None:
    victim = SINKS[sink](tmp_path, topics)
    outcome = kills(victim, topics, ROUNDS[sink], seed=7)
    assert (len(outcome.kills), outcome.twice) == (ROUNDS[sink], 0)
    if isinstance(victim, Export):
        table = {"table": "lake.orders"} if sink == "iceberg" else {}
        seen = jobs.run("verify", lake=str(victim.table), format=sink, complete=True, **table)
        assert (seen.problems, seen.rows) == ([], sum(one.rows for one in outcome.held.values()))
    shutil.rmtree(tmp_path, ignore_errors=True)
