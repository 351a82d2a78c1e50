"""From settings to an exit code: what is looked at before Spark starts, dry runs of every kind, what is noted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from core.records.record import NewRecord
from pipeline.command import running
from pipeline.command.group import spark
from pipeline.jobs import state
from pipeline.jobs.registry import read_settings
from pipeline.jobs.report import Outcome
from pipeline.jobs.stream import JobError
from tests.pipeline.jobs.running import Notes
from tests.pipeline.lake.rows import make, offer, rows
from tests.pipeline.topics import Topics


def _type(*arguments: str) -> Result:
    return CliRunner().invoke(spark, list(arguments))


@pytest.fixture
def lake(here: Path) -> Path:
    """A table of 30 rows."""
    table = make("parquet", here / "lake")
    table.open(rows(0, 0).schema)
    offer(table, 0, rows(0, 29))
    table.close()
    return here / "lake"


def test_every_kind_of_job_has_a_dry_run_for_people_and_for_machines(
    here: Path, lake: Path, topics: Topics
) -> None:
    topics.create("dry", 2)
    topics.write("dry", [NewRecord(value=b"v")] * 8)
    topics.create("back", 3)
    asked = {
        "export": ("--topic", "dry", "--to", "x"),
        "dedup": ("--topic", "dry", "--to", "back"),
        "aggregate": ("--topic", "dry", "--to", "back", "--schema", "id INT", "--compute", "sum(id)"),
        "snapshot": ("--topic", "dry", "--to", "x"),
        "usage": ("--topic", "dry"),
        "replay": ("--lake", "lake", "--topic", "back", "--since", "2025-01-31T12:00Z"),
        "verify": ("--lake", "lake"),
    }
    for kind, arguments in asked.items():
        said, told = _type("plan", kind, *arguments), _type("plan", kind, *arguments, "--json")
        assert (said.exit_code, told.exit_code) == (0, 0), said.output + told.output
        lines = [json.loads(line) for line in told.stdout.splitlines()]
        if kind in ("replay", "verify"):
            assert (lines[0]["rows"], lines[0]["files"], lines[0]["table"]) == (30, 1, str(lake)), kind
            assert "ROWS" in said.stdout
        else:
            assert [(line["topic"], line["records"]) for line in lines] == [("dry", 8), ("dry", 0)], kind
            assert "8 records" in said.stdout
        if kind == "replay":
            assert (lines[0]["topic"], lines[0]["partitions"], lines[0]["there"]) == ("back", 3, 0)
    assert sorted(path.name for path in here.iterdir()) == ["lake"], "a dry run leaves nothing"


def test_what_is_not_there_is_told_before_spark_starts(
    here: Path, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_spark(*_: Any) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("pipeline.jobs.session.session", no_spark)
    monkeypatch.setattr("pipeline.jobs.plan.PATIENCE_SECONDS", 0.1)
    for arguments, says in (
        (("snapshot", "--topic", "none", "--to", "x"), "no topic 'none'"),
        (("usage", "--topic", "none"), "no topic 'none'"),
        (("verify", "--lake", "none"), "there is no table in"),
        (
            ("replay", "--lake", "lake", "--topic", "none"),
            "topic: the cluster has no topic 'none'; make it first",
        ),
        (("replay", "--lake", "lake", "--topic", "x", "--bootstrap", "127.0.0.1:1"), "127.0.0.1:1"),
    ):
        for verb in ("run", "plan"):
            done = _type(verb, *arguments)
            assert done.exit_code == 1, done.output
            assert says in done.output and "Spark" not in done.output and "Traceback" not in done.output
    (line,) = [line for line in _type("status", "--json").stdout.splitlines() if '"job":"verify"' in line]
    assert json.loads(line)["state"] == "failed" and "there is no table" in json.loads(line)["error"]


@pytest.mark.parametrize(
    ("ends", "code", "noted"),
    [
        (Outcome(job="usage", rows=3), 0, ("done", 3, None)),
        (Outcome(job="usage", problems=["t-0: a gap"]), 1, ("failed", 0, None)),
        (JobError("it is not there"), 1, ("failed", 0, "it is not there")),
        (
            ValueError("Traceback\nfoo.BarError: deep inside\nat x"),
            1,
            ("failed", 0, "foo.BarError: deep inside"),
        ),
    ],
)
def test_how_a_run_ends_is_its_exit_code_and_is_noted(
    ends: Outcome | Exception, code: int, noted: tuple[str, int, str | None], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    def work(*_: Any) -> Outcome:
        if isinstance(ends, Exception):
            raise ends
        return ends

    monkeypatch.setattr(running, "_in_session", work)
    report = Notes()
    job = read_settings("usage", {"state": str(tmp_path), "metrics_port": 0})
    assert running.run_job(job, report) == code
    assert report.notes[0].startswith("metrics on http://127.0.0.1:")
    (run,) = state.runs(tmp_path)
    assert (run.state, run.rows, run.error) == noted


def test_paths_are_made_absolute_and_topics_are_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    export = running.absolute(read_settings("export", {"topics": ["t"], "to": "file://lake", "state": "s"}))
    assert (export.to, export.state) == (str(tmp_path / "lake"), str(tmp_path / "s"))  # type: ignore[attr-defined]
    assert export.title() == "export-file-lake"
    assert running.absolute(read_settings("dedup", {"topics": ["t"], "to": "u"})).to == "u"  # type: ignore[attr-defined]
    assert running.absolute(read_settings("replay", {"lake": "l", "topic": "t"})).lake == str(tmp_path / "l")  # type: ignore[attr-defined]
