"""A runner of jobs for each test."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.pipeline.jobs.running import Runner
from tests.pipeline.topics import Topics


@pytest.fixture
def jobs(spark: SparkSession, topics: Topics, tmp_path: Path) -> Runner:
    """Runs jobs in the shared session against this file's broker."""
    return Runner(spark, topics, tmp_path)
