"""Data directories of each earlier format open with everything in them, whenever a migration is cut off."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from alembic.config import Config as AlembicConfig
from alembic.script import ScriptDirectory

from core.metadata.models import SCHEMA_REVISION
from tests.broker_process import ROOT, BrokerProcess
from tests.clients.wire import Wire
from tests.upgrade.make_sample import CODECS, ONCE, PER_CODEC, value_of

SAMPLES = sorted((Path(__file__).parent / "samples").glob("*.tar.gz"))
OLD = [path for path in SAMPLES if path.name[:4] < SCHEMA_REVISION]
# The samples get older every day: a key is forgotten after one, committed offsets after seven.
FOREVER = {"SLUICE_IDEMPOTENCY_TTL_MS": str(10**13), "SLUICE_OFFSETS_RETENTION_MS": str(10**13)}
# Prepares copies of a database: the N-th in a process that dies at its N-th statement, then in another one. It ends
# with the first process that does not die. Forks: two hundred starts of an interpreter would take minutes.
DIES_AT = """
import os, shutil, signal, sys, traceback
from sqlalchemy import create_engine, event
from core.metadata import schema

original, directory = sys.argv[1:]

def prepare(database, at):
    engine, seen = create_engine("sqlite:///" + database), [0]
    @event.listens_for(engine, "before_cursor_execute")
    def count(*_):
        seen[0] += 1
        if seen[0] == at:
            os.kill(os.getpid(), signal.SIGKILL)
    schema.prepare(engine)
    engine.dispose()

def in_a_process(database, at):
    child = os.fork()
    if child == 0:
        try:
            prepare(database, at)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

# Loads what the processes need.
shutil.copy(original, directory + "/whole.db")
prepare(directory + "/whole.db", 0)
at = 1
while True:
    database = f"{directory}/at-{at}.db"
    shutil.copy(original, database)
    code = in_a_process(database, at)
    if code == 0:
        break
    assert code == -signal.SIGKILL, f"statement {at}: exit code {code}"
    assert in_a_process(database, 0) == 0, f"after a death at statement {at}"
    at += 1
print(at)
"""


def unpack(sample: Path, target: Path) -> Path:
    target.mkdir()
    with tarfile.open(sample) as archive:
        archive.extractall(target, filter="data")
    return target


@pytest.fixture(params=SAMPLES, ids=lambda path: path.name.removesuffix(".tar.gz"))
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[BrokerProcess, str]]:
    data = unpack(request.param, tmp_path / "data")
    process = BrokerProcess(data, environment=FOREVER).start()
    yield process, request.param.name[:4]
    assert process.stop() == 0
    assert "Traceback" not in process.read_log()


def test_everything_is_there(broker: tuple[BrokerProcess, str]) -> None:
    process, revision = broker
    with Wire(process.kafka_address) as wire:
        assert wire.topics() == ["latest", "orders"]
        found = [wire.read_all("orders", partition) for partition in (0, 1)]
        newest = {record.key: record.value for record in wire.read_all("latest")}
    written = Counter(value_of(codec, i) for codec in CODECS for i in range(PER_CODEC))
    assert Counter(record.value for partition in found for record in partition) == written + Counter(
        [b"once"]
    )
    assert [record.offset for record in found[0]] == list(range(51))
    assert found[1][0].headers and found[1][0].timestamp == 1_700_000_000_001
    assert {key: json.loads(value or b"") for key, value in newest.items()} == {
        b"k0": {"n": 9},
        b"k1": {"n": 7},
        b"k2": {"n": 8},
    }
    with httpx.Client(base_url=f"{process.http}/api/v1", timeout=20, trust_env=False) as http:
        assert http.get("/topics/orders").json()["configs"]["segment.bytes"] == "2000"
        if revision >= "0002":
            offsets = http.get("/groups/readers/offsets").json()["offsets"]
            assert [(o["partition"], o["next_offset"]) for o in offsets] == [(0, 17), (1, 23)]
        if revision >= "0003":
            again = http.post(
                "/groups/watchers/consumers/one:poll", json={"limit": 5, "wait_ms": 6000}
            ).json()
            assert again["redelivered"] and len(again["records"]) == 5
        if revision >= "0004":
            answer = http.post("/topics/orders/records", **ONCE)
            assert answer.headers["idempotent-replayed"] == "true"
        if revision >= "0006":
            shown = http.get("/topics/orders").json()["effective_configs"]["delete.retention.ms"]
            assert (shown["value"], shown["source"]) == ("123456", "broker")
        if revision >= "0013":
            partitions = http.get("/queues/mail/stats").json()["partitions"]
            assert sum(p["start"] for p in partitions) == 1
            assert sum(p["available"] + p["in_flight"] for p in partitions) == len(CODECS) * PER_CODEC


@pytest.mark.parametrize("sample", OLD, ids=lambda path: path.name[:4])
def test_a_migration_that_is_killed_at_any_statement_is_done_at_the_next_start(
    sample: Path, tmp_path: Path
) -> None:
    original = unpack(sample, tmp_path / "original") / "metadata.db"
    done = subprocess.run(
        [sys.executable, "-c", DIES_AT, str(original), str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    deaths = int(done.stdout)
    assert deaths > 3
    whole = contents(tmp_path / "whole.db")
    for at in range(1, deaths + 1):
        found = contents(tmp_path / f"at-{at}.db")
        assert found == whole, f"another schema after a death at statement {at}"


def contents(database: Path) -> dict[str, list[tuple[object, ...]]]:
    """Every table with its columns and rows."""
    with sqlite3.connect(database) as db:
        names = [
            name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'index')")
        ]
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        found = {name: sorted(db.execute(f'SELECT * FROM "{name}"'), key=repr) for name in tables}
    db.close()
    return {**found, "names": sorted((name,) for name in names)}


def test_there_is_a_sample_of_each_revision() -> None:
    """Of the newest as well: what it wrote must open in all releases to come."""
    config = AlembicConfig()
    config.set_main_option("script_location", str(ROOT / "migrations"))
    revisions = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    assert SCHEMA_REVISION in revisions
    assert {path.name[:4] for path in SAMPLES} == revisions
    assert sum(path.name.endswith("-killed.tar.gz") for path in SAMPLES) >= 2
