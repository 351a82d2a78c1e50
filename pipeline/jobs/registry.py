"""Which jobs there are, and where their code is; nothing of Spark is imported before a job runs."""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from pipeline.jobs import settings
from pipeline.jobs.report import Outcome, Report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


BOOTSTRAP = "SLUICE_BOOTSTRAP"
"""The environment variable for the brokers, where neither a flag nor the file names them."""


class Kind(NamedTuple):
    """A job: its settings, and the module whose `run(spark, settings, report)` does it."""

    settings: type[settings.Job]
    module: str


KINDS: dict[str, Kind] = {
    "export": Kind(settings.Export, "pipeline.jobs.export"),
    "replay": Kind(settings.Replay, "pipeline.jobs.replay"),
    "aggregate": Kind(settings.Aggregate, "pipeline.jobs.aggregate"),
    "dedup": Kind(settings.Dedup, "pipeline.jobs.dedup"),
    "snapshot": Kind(settings.Snapshot, "pipeline.jobs.snapshot"),
    "usage": Kind(settings.Usage, "pipeline.jobs.usage"),
    "verify": Kind(settings.Verify, "pipeline.jobs.verify"),
}


class SettingsError(Exception):
    """Settings that cannot be used; the message names the key."""


def read_settings(kind: str, values: dict[str, Any]) -> settings.Job:
    """The settings of a job from YAML or flags. Raises SettingsError with one sentence."""
    if BOOTSTRAP in os.environ:
        values = {"bootstrap": os.environ[BOOTSTRAP], **values}
    try:
        return msgspec.convert({"job": kind, **values}, type=KINDS[kind].settings)
    except msgspec.ValidationError as error:
        raise SettingsError(str(error)) from None


def run(spark: SparkSession, job: settings.Job, report: Report) -> Outcome:
    """Run a job in a session. What Spark says in a hundred lines becomes a JobError with the telling one."""
    from pyspark.errors import PySparkException

    from pipeline.jobs.stream import JobError, telling_line

    try:
        done: Outcome = import_module(KINDS[job.job].module).run(spark, job, report)
    except PySparkException as error:
        raise JobError(telling_line(str(error))) from error
    return done
