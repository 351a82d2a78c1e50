"""The example of each page of the documentation, typed in as it stands, in the tests' own Spark session."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from pipeline.command.group import spark as command
from pipeline.jobs.registry import KINDS, read_settings
from tests.broker_process import ROOT, BrokerProcess

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")
DOCS = ROOT / "pipeline" / "docs"


def example(name: str) -> list[str]:
    """The shell lines of a page."""
    (block,) = re.findall(r"```sh\n(.*?)```", (DOCS / f"{name}.md").read_text(), re.DOTALL)
    return list(block.splitlines())


class Typist:
    """Types lines. `sluice spark` runs here, in the shared session; all else in a shell."""

    def __init__(self, broker: BrokerProcess, home: Path) -> None:
        self.broker, self.home = broker, home
        program = home / "bin" / "sluice"
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\ncd {shlex.quote(str(ROOT))} && exec {sys.executable} -m app "$@"\n')
        program.chmod(0o755)

    def type(self, line: str) -> str:
        """What a line prints; it must end well."""
        if line.startswith("sluice spark "):
            done = CliRunner().invoke(command, shlex.split(line)[2:])
            assert done.exit_code == 0, f"{line}\n{done.output}{done.exception}"
            return done.stdout
        line = line.replace("http://127.0.0.1:8082", self.broker.http).replace("curl ", "curl -sSf ")
        path = f"{self.home / 'bin'}:{os.environ['PATH']}"
        environment = {**os.environ, "SLUICE_URL": self.broker.http, "PATH": path}
        result = subprocess.run(
            ["sh", "-c", line], env=environment, capture_output=True, text=True, timeout=60
        )
        assert result.returncode == 0, f"{line}\n{result.stdout}{result.stderr}"
        return result.stdout


@pytest.fixture
def typist(
    broker: BrokerProcess, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Typist:
    """A typist in an empty directory."""

    @contextmanager
    def shared(*_: Any) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr("pipeline.jobs.session.session", shared)
    monkeypatch.setenv("SLUICE_BOOTSTRAP", broker.kafka)
    monkeypatch.chdir(tmp_path)
    return Typist(broker, tmp_path)


def test_every_job_has_a_page_with_an_example() -> None:
    for name in KINDS:
        assert any(f"sluice spark run {name} " in line for line in example(name)), name


@pytest.mark.client("curl")
def test_export_as_typed(typist: Typist) -> None:
    *_, letters = [typist.type(line) for line in example("export")]
    assert letters == "not JSON\n"
    assert pq.read_table("lake/raw").num_rows == 2
    assert [row["total"] for row in pq.read_table("lake/typed").to_pylist()] == [12.5]


@pytest.mark.client("curl")
def test_verify_as_typed(typist: Typist) -> None:
    *_, said = [typist.type(line) for line in example("verify")]
    assert "verify: 2 rows" in said


@pytest.mark.client("curl")
def test_the_whole_tour_from_curl_to_a_table_and_back_into_a_topic(typist: Typist) -> None:
    *_, said = [typist.type(line) for line in example("replay")]
    assert said == "again\n"
    assert pq.read_table("lake/played")["value"].to_pylist() == [b"again"]


@pytest.mark.client("curl")
def test_dedup_as_typed(typist: Typist) -> None:
    *_, said = [typist.type(line) for line in example("dedup")]
    assert said == '{"id": 1}\n'


@pytest.mark.client("curl")
def test_aggregate_as_typed(typist: Typist) -> None:
    *_, said = [typist.type(line) for line in example("aggregate")]
    assert said.startswith('{"city":"Oslo"} {"window_start":')
    assert '"total":2.5,"sales":1}' in said


@pytest.mark.client("curl")
def test_snapshot_as_typed(typist: Typist) -> None:
    for line in example("snapshot"):
        typist.type(line)
    assert pq.read_table("lake/cities")["value"].to_pylist() == [b"Rome"]


@pytest.mark.client("curl")
def test_usage_as_typed(typist: Typist) -> None:
    *_, said = [typist.type(line) for line in example("usage")]
    assert "usage: 2 rows" in said
    assert "TOP_KEY_SHARE" in said


def test_the_file_of_the_export_page_is_one() -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", (DOCS / "export.md").read_text(), re.DOTALL)
    values = msgspec.yaml.decode(text)
    assert read_settings(values.pop("job"), values).job == "export"
