"""The output of a running job: for a terminal, for a pipe, for Prometheus."""

from __future__ import annotations

from typing import Protocol

import msgspec


class Progress(msgspec.Struct, omit_defaults=True, kw_only=True):
    """How far a job is: after a micro-batch, or within a step of a batch.

    `rows` came since the last report, `total_rows` since the job began (in a batch since its step began); `lag` is
    what is still to come, if that is known. Only a batch has a `step`, and `tasks` of Spark that it is known to take.
    """

    job: str
    step: str = ""
    tasks: int = 0
    tasks_done: int = 0
    batch: int = -1
    rows: int = 0
    total_rows: int = 0
    rows_per_second: float = 0.0
    seconds: float = 0.0
    lag: int | None = None
    files: int = 0
    bytes: int = 0
    rejected: int = 0
    skipped: int = 0


class Outcome(msgspec.Struct, omit_defaults=True, kw_only=True):
    """What a job did. `problems` are for a person; a job with problems ends with exit code 1.

    `skipped` were there already: batches of an export, records of a replay.
    """

    job: str
    seconds: float = 0.0
    rows: int = 0
    files: int = 0
    bytes: int = 0
    rejected: int = 0
    skipped: int = 0
    batches: int = 0
    table: list[dict[str, object]] = []
    problems: list[str] = []


class Report(Protocol):
    """Where a job's words go."""

    def note(self, text: str) -> None:
        """One line for a person."""

    def progress(self, progress: Progress) -> None:
        """The job continued."""

    def done(self, outcome: Outcome) -> None:
        """The job is over."""
