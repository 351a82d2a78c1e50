"""`sluice spark` without Spark: plans, status, refusals, a project; in words and for machines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pipeline.command.group import spark
from pipeline.jobs import state
from pipeline.jobs.registry import KINDS
from tests.pipeline.topics import Topics


def run(*arguments: str) -> Result:
    return CliRunner().invoke(spark, list(arguments))


def _checkpoint(home: Path, name: str, ends: dict[str, dict[str, int]]) -> None:
    """What Spark leaves: one batch that is done."""
    directory = home / "sluice-spark" / "checkpoints" / name
    for log in ("offsets", "commits"):
        (directory / log).mkdir(parents=True)
        (directory / log / "0").write_text("v1\n{}\n" + json.dumps(ends) + "\n")


def test_a_plan_says_what_would_be_read(here: Path, topics: Topics) -> None:
    topics.create("planned", 2)
    topics.fill("planned", 10, partitions=2)
    topics.truncate("planned", 4)
    asked = ("plan", "export", "--topic", "planned", "--to", "lake", "--max-offsets-per-trigger", "5")
    done = run(*asked)
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[1].split() == ["planned", "0", "4", "10", "6"]
    assert "16 records, 4 batches" in done.stdout
    _checkpoint(here, "p", {"planned": {"0": 8, "1": 10}})
    lines = [json.loads(line) for line in run(*asked, "--name", "p", "--json").stdout.splitlines()]
    assert [line["records"] for line in lines] == [2, 0]
    assert lines[0]["from"] == 8


def test_a_plan_names_deleted_records(here: Path, topics: Topics) -> None:
    topics.create("gone", 1)
    topics.fill("gone", 10)
    topics.truncate("gone", 6)
    _checkpoint(here, "g", {"gone": {"0": 2}})
    done = run("plan", "export", "--topic", "gone", "--to", "lake", "--name", "g")
    assert done.exit_code == 1
    assert done.stderr == "gone-0: offsets 2 to 5 are deleted; the topic begins at 6\n"
    (here / "sluice-spark/checkpoints/g/commits/0").unlink()
    assert run("plan", "export", "--topic", "gone", "--to", "lake", "--name", "g").exit_code == 0


@pytest.mark.parametrize("what", ["plan", "run"])
def test_an_unknown_topic_and_a_broker_that_is_away_are_told_before_spark_starts(
    what: str, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.jobs.plan.PATIENCE_SECONDS", 0.1)
    unknown = run(what, "export", "--topic", "nowhere", "--to", "lake", "--once")
    assert unknown.exit_code == 1
    assert "nowhere" in unknown.output
    away = run(what, "export", "--topic", "x", "--to", "lake", "--bootstrap", "127.0.0.1:1", "--once")
    assert away.exit_code == 1
    assert "127.0.0.1:1" in away.output and "Connection refused" in away.output
    assert "Traceback" not in unknown.output + away.output


def test_status_tells_how_jobs_stand(here: Path) -> None:
    assert "no job has run" in run("status").stdout
    home = here / "sluice-spark"
    note = state.begin_run(home, "export", "one", {})
    _checkpoint(here, "one", {"t": {"0": 5}})
    assert [json.loads(line)["state"] for line in run("status", "--json").stdout.splitlines()] == ["running"]
    state.end_run(home, note, "done", rows=5)
    note = state.begin_run(home, "export", "two", {})
    note.pid = 2**22 + 1
    state.write_run(home, note)
    rows = {row["name"]: row for row in map(json.loads, run("status", "--json").stdout.splitlines())}
    assert (rows["one"]["state"], rows["one"]["rows"], rows["one"]["batch"]) == ("done", 5, 0)
    assert rows["one"]["offsets"] == {"t": {"0": 5}}
    assert rows["two"]["state"] == "killed"
    assert run("status").stdout.splitlines()[0].split()[:3] == ["NAME", "JOB", "STATE"]


def test_a_file_is_a_job_and_is_checked_as_flags_are(here: Path, topics: Topics) -> None:
    topics.create("filed", 1)
    (here / "job.yaml").write_text("job: export\ntopics: [filed]\nto: lake\n")
    assert run("plan", "job.yaml").exit_code == 0
    for text, message in [
        ("job: export\ntopics: [filed]\n", "`to`"),
        ("job: export\ntopics: filed\nto: x\n", "`array`"),
        ("job: exprot\n", "one of export, "),
        ("- 1\n", "one of export, "),
        ("job: [\n", "not YAML"),
        ("job: export\ntopics: [filed]\nto: x\nmodee: raw\n", "modee"),
    ]:
        (here / "bad.yaml").write_text(text)
        done = run("run", "bad.yaml")
        assert (done.exit_code, message in done.stderr) == (2, True), done.stderr
        assert done.stderr.startswith("sluice spark: bad.yaml")
    assert "No such file" in run("run", "none.yaml").stderr


def test_every_flag_has_a_help_and_wrong_ones_are_refused() -> None:
    for kind in KINDS:
        done = run("run", kind, "--help")
        assert done.exit_code == 0
        options = [line for line in done.stdout.splitlines() if line.startswith("  --")]
        assert len(options) > 6
    assert run("run", "export", "--topc", "a").exit_code == 2
    assert run("run", "exprot").exit_code == 2
    assert "key=value" in run("run", "export", "--spark", "x").output


def test_a_project_is_written_once(here: Path) -> None:
    done = run("init", "mine", "--topic", "orders")
    assert done.exit_code == 0, done.output
    spec = (here / "mine" / "spark-pipeline.yml").read_text()
    assert f"file://{here}/mine/storage" in spec and 'sluice.output: "orders-clean"' in spec
    assert "$" not in spec
    assert "not empty" in run("init", "mine", "--topic", "orders").stderr
    assert "no name of a topic" in run("init", "other", "--topic", "a b").stderr
    assert "must not be" in run("init", "other", "--topic", "a", "--output", "a").stderr
