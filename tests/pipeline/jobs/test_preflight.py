"""What is told to be wrong before Spark starts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipeline.jobs import preflight as module
from pipeline.jobs.preflight import PreflightError, preflight
from pipeline.jobs.registry import read_settings
from pipeline.jobs.state import checkpoint
from pipeline.wire.cluster import UnknownTopicError
from pipeline.wire.errors import WireError
from tests.pipeline.topics import Topics


def check(topics: Topics, home: Path, kind: str, /, **values: Any) -> None:
    """Look at a job."""
    where: dict[str, Any] = {"bootstrap": topics.broker.kafka, "state": str(home / "state")}
    preflight(read_settings(kind, {**where, **values}))


def test_topics_that_are_not_there_are_named_with_their_setting(topics: Topics, tmp_path: Path) -> None:
    topics.create("there")
    read = {"topics": ["there"]}
    typed = {"mode": "json", "schema": "a INT", "on_error": "quarantine"}
    for kind, values in (
        ("export", {"topics": ["no"], "to": "x"}),
        ("snapshot", {"topics": ["no"], "to": "x"}),
        ("usage", {"topics": ["no"]}),
    ):
        with pytest.raises(UnknownTopicError, match="the cluster has no topic 'no'"):
            check(topics, tmp_path, kind, **values)
    (tmp_path / "lake").mkdir()
    lake = {"lake": str(tmp_path / "lake")}
    for kind, values, setting in (
        ("export", {**read, "to": "x", **typed, "dead_letter": "no"}, "dead_letter"),
        ("dedup", {**read, "to": "no"}, "to"),
        ("aggregate", {**read, "to": "no", "schema": "a INT", "compute": ["count(*)"]}, "to"),
        ("replay", {**lake, "topic": "no"}, "topic"),
        ("verify", {**lake, "dead_letter": "no"}, "dead_letter"),
    ):
        with pytest.raises(
            PreflightError, match=f"^{setting}: the cluster has no topic 'no'; make it first$"
        ):
            check(topics, tmp_path, kind, **values)
    for kind, values in (("usage", {}), ("verify", lake), ("export", {**read, "to": "x"})):
        check(topics, tmp_path, kind, **values)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"source": {"maxOffsetPerTrigger": "5"}}, "unknown option '?maxOffsetPerTrigger"),
        ({"source": {"transport": "pigeon"}}, "transport"),
        ({"source": {"endingOffsets": "latest"}}, "endingOffsets"),
        ({"starting": '{"parts":{"0":1}}'}, "it lacks parts-1$"),
        ({"starting": '{"parts":{"0":1,"1":-2,"7":0}}'}, "it has, and there is not, parts-7$"),
    ],
)
def test_options_of_the_source_and_offsets_that_fit_nothing_are_told(
    values: dict[str, Any], says: str, topics: Topics, tmp_path: Path
) -> None:
    if "parts" not in topics.wire.topics():
        topics.create("parts", 2)
    with pytest.raises(PreflightError, match=f"(?i){says}"):
        check(topics, tmp_path, "export", topics=["parts"], to="x", **values)
    check(topics, tmp_path, "export", topics=["parts"], to="x", starting='{"parts":{"0":1,"1":-2}}')


@pytest.mark.parametrize("kind", ["replay", "verify"])
def test_a_table_that_is_not_there_is_told(kind: str, topics: Topics, tmp_path: Path) -> None:
    topic = {"topic": "t"} if kind == "replay" else {}
    with pytest.raises(PreflightError, match=r"there is no table in .*nowhere"):
        check(topics, tmp_path, kind, lake=str(tmp_path / "nowhere"), **topic)


@pytest.mark.parametrize("kind", ["export", "snapshot"])
def test_a_place_where_no_table_can_be_is_told(kind: str, topics: Topics, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for to in ("file", "file/below"):
        with pytest.raises(PreflightError, match="file is a file; a table is a directory"):
            check(topics, tmp_path, kind, topics=["t"], to=str(tmp_path / to))


def test_every_job_tells_that_the_broker_is_away(
    topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.jobs.plan.PATIENCE_SECONDS", 0.0)
    for kind, values in (
        ("usage", {}),
        ("verify", {"lake": str(tmp_path)}),
        ("snapshot", {"topics": ["t"], "to": "x"}),
        ("export", {"topics": ["t"], "to": "x"}),
    ):
        with pytest.raises(WireError, match=r"no connection to the broker at 127.0.0.1:1: "):
            check(topics, tmp_path, kind, **values, bootstrap="127.0.0.1:1")


def test_a_library_that_is_not_installed_is_named(
    topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "find_spec", lambda _: None)
    with pytest.raises(
        PreflightError, match=r"format delta needs the library deltalake: pip install 'sluice\[lake\]'"
    ):
        check(topics, tmp_path, "export", topics=["t"], to="x", format="delta")


def test_the_state_of_other_topics_is_not_continued(topics: Topics, tmp_path: Path) -> None:
    for name in ("first", "second"):
        topics.create(name)
    directory = checkpoint(tmp_path / "state", "export-x")
    for log in ("offsets", "commits"):
        (directory / log).mkdir(parents=True)
        (directory / log / "0").write_text("v1\n{}\n" + json.dumps({"first": {"0": 5}}) + "\n")
    check(topics, tmp_path, "export", topics=["first", "second"], to="x")
    with pytest.raises(
        PreflightError, match="the job export-x has read first until now, which this run leaves out"
    ):
        check(topics, tmp_path, "export", topics=["second"], to="x")
    check(topics, tmp_path, "export", topics=["second"], to="x", name="another")
    check(topics, tmp_path, "export", topics=["second"], to="x", source={"failOnDataLoss": "false"})
