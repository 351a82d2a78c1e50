"""The examples of docs/ that need Spark, typed in as they stand, in the tests' own Spark session.

The scenarios begin with `spark`. tests/pipeline/test_places.py runs `spark-tour` on a cluster.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
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
from pipeline.sink.marks import HEADER
from pipeline.sink.options import WRITING
from pipeline.source.options import READING
from tests.broker_process import ROOT
from tests.docs.examples import SCENARIOS, Reader, reader
from tests.pipeline.topics import Topics

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")
PAGES = ROOT / "docs" / "spark"
# A cluster runs it: tests/pipeline/test_places.py.
ON_A_CLUSTER = {"spark-tour"}


def _sink(home: Path, topics: Topics) -> None:
    written = [record for partition in range(3) for record in topics.records("users", partition)]
    assert sorted(record.value or b"" for record in written) == [b"Hello", b"one more", b'{"city":"Oslo"}']
    assert all(HEADER in dict(record.headers) for record in written)


def _export(home: Path, topics: Topics) -> None:
    assert pq.read_table(home / "lake" / "raw").num_rows == 2
    assert [row["total"] for row in pq.read_table(home / "lake" / "typed").to_pylist()] == [12.5]


def _replay(home: Path, topics: Topics) -> None:
    assert pq.read_table(home / "lake" / "played")["value"].to_pylist() == [b"again"]


def _snapshot(home: Path, topics: Topics) -> None:
    assert pq.read_table(home / "lake" / "cities")["value"].to_pylist() == [b"Rome"]


# What holds after a scenario, beside what its page says.
AFTERWARDS: dict[str, Callable[[Path, Topics], None]] = {
    "spark-sink": _sink,
    "spark-export": _export,
    "spark-replay": _replay,
    "spark-snapshot": _snapshot,
}


class SparkReader(Reader):
    """A reader whose `sluice spark` runs in this process, in the shared session."""

    def replaced(self, text: str) -> str:
        """Put real ports, and a directory that Spark's own process takes for ours, into a text."""
        return super().replaced(text).replace('"checkpoints/', f'"{self.home}/checkpoints/')

    def type(self, text: str, place: str) -> str:
        """Return what a command prints."""
        if not text.startswith("sluice spark "):
            return super().type(text, place)
        done = CliRunner().invoke(command, shlex.split(self.replaced(text))[2:])
        assert done.exit_code == 0, f"{place}: {text}\n{done.output}{done.exception}"
        return done.stdout


@pytest.mark.client("curl")
@pytest.mark.parametrize("name", sorted({n for n in SCENARIOS if n.startswith("spark")} - ON_A_CLUSTER))
def test_a_scenario_does_what_its_page_says(
    name: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def shared(*_: Any) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr("pipeline.jobs.session.session", shared)
    home = tmp_path / "home"
    with reader(home, SCENARIOS[name], SparkReader) as person:
        monkeypatch.setenv("SLUICE_BOOTSTRAP", person.brokers[0].kafka)
        monkeypatch.chdir(home)
        person.names["spark"] = spark
        for block in SCENARIOS[name]:
            person.run(block)
        with Topics(person.brokers[0]) as topics:
            AFTERWARDS.get(name, lambda *_: None)(home, topics)


def test_every_job_has_a_page_with_an_example_that_runs() -> None:
    for name in KINDS:
        text = "".join(block.text for block in SCENARIOS[f"spark-{name}"])
        assert f"sluice spark run {name} " in text, name
        assert all(block.page == PAGES / "jobs" / f"{name}.md" for block in SCENARIOS[f"spark-{name}"])


def test_every_option_of_reads_and_writes_is_described() -> None:
    text = (PAGES / "source.md").read_text() + (PAGES / "sink.md").read_text()
    options = (set(READING) | set(WRITING)) - {"checkpointLocation", "queryName"}
    # The page says that security options may have the prefix, and lists them without it.
    shown = {name: name.removeprefix("kafka.") if "kafka.s" in name else name for name in options}
    missing = [name for name, short in shown.items() if not re.search(rf"\b{re.escape(short)}\b", text)]
    assert sorted(missing) == []


def test_the_file_of_the_export_page_is_one() -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", (PAGES / "jobs" / "export.md").read_text(), re.DOTALL)
    values = msgspec.yaml.decode(text)
    assert read_settings(values.pop("job"), values).job == "export"
