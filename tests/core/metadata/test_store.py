"""core.metadata.store and schema: one commit for many, isolation of a bad job, migrations."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import sqlite3
import uuid
from pathlib import Path

import pytest
from alembic.config import Config as AlembicConfig
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, create_engine, text

from core.errors import BrokerError, ErrorCode, StartupError
from core.metadata import schema
from core.metadata.models import SCHEMA_REVISION
from core.metadata.store import CARRY_OVER, Store
from core.metadata.topics import (
    TopicRow,
    deleted_topics,
    forget_deletions,
    load_settings,
    load_topics,
    note_deletion,
    put_setting,
    put_topic,
    remove_topic,
)

REVISIONS = sorted(p.stem[1:5] for p in Path(schema.__file__).parents[2].glob("migrations/versions/r*.py"))


def row(name: str, **changes: object) -> TopicRow:
    return TopicRow(name, uuid.uuid5(uuid.NAMESPACE_DNS, name), 3, {"retention.ms": "1"}, 1, 1)._replace(
        **changes
    )


@pytest.fixture
async def store(tmp_path: Path):
    opened = Store(tmp_path / "metadata.db")
    await opened.open(check=False)
    yield opened
    await opened.close()


async def test_what_was_stored_is_there_after_a_restart(tmp_path: Path) -> None:
    for attempt in range(2):
        store = Store(tmp_path / "metadata.db")
        await store.open(check=True)
        if attempt == 0:
            await store.submit([put_topic(row("a")), put_topic(row("b")), put_setting("cluster.id", "x")])
            await store.submit([put_topic(row("a", partitions=9, version=2)), remove_topic("b")])
        assert await store.read(load_topics) == [row("a", partitions=9, version=2)]
        assert await store.read(load_settings) == {"cluster.id": "x"}
        await store.close()


async def test_jobs_that_wait_together_share_a_commit_and_keep_their_order(store: Store) -> None:
    futures = [store.submit([put_setting("n", str(i)), put_setting(f"k{i}", "v")]) for i in range(500)]
    for future in futures:
        await future
    values = await store.read(load_settings)
    assert values["n"] == "499"
    assert len(values) == 501


async def test_what_is_carried_over_needs_no_write_ahead_log(store: Store, tmp_path: Path) -> None:
    await store.submit([put_setting("before", "1")])
    await store.submit([put_setting("carried", "1"), CARRY_OVER])
    await store.submit([put_setting("after", "1")])
    # Alone, as if the -wal were lost.
    shutil.copy(tmp_path / "metadata.db", tmp_path / "copy.db")
    with contextlib.closing(sqlite3.connect(tmp_path / "copy.db")) as db:
        assert {name for (name,) in db.execute("SELECT name FROM settings")} == {"before", "carried"}
    assert {*await store.read(load_settings)} == {"before", "carried", "after"}


async def test_a_deletion_is_remembered_until_it_is_forgotten(store: Store) -> None:
    ids = [uuid.UUID(int=n) for n in range(3)]
    for topic_id in ids:
        await store.submit([note_deletion(topic_id)])
    await store.submit([put_setting("other", "1"), forget_deletions(ids[:2])])
    found = await store.read(load_settings)
    assert deleted_topics(found) == {ids[2]}
    assert len(found) == 2


async def test_commits_that_fail_do_not_fill_the_log(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    def broken(connection: Connection) -> None:
        connection.execute(text("INSERT INTO nowhere VALUES ('secret')"))

    outcomes = await asyncio.gather(*(store.submit([broken]) for _ in range(50)), return_exceptions=True)
    assert all(isinstance(outcome, BrokerError) for outcome in outcomes)
    assert 1 <= caplog.text.count("metadata store: ") <= 2
    assert "no such table" in caplog.text and "secret" not in caplog.text


async def test_a_job_that_fails_harms_no_other(store: Store) -> None:
    def broken(connection: Connection) -> None:
        connection.execute(text("INSERT INTO nowhere VALUES (1)"))

    good = store.submit([put_setting("before", "1")])
    bad = store.submit([put_setting("half", "1"), broken])
    also_good = store.submit([put_setting("after", "1")])
    await good
    await also_good
    with pytest.raises(BrokerError) as refused:
        await bad
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert set(await store.read(load_settings)) == {"before", "after"}


def test_the_newest_revision_is_the_one_the_models_name() -> None:
    config = AlembicConfig()
    config.set_main_option("script_location", str(Path(schema.__file__).parents[2] / "migrations"))
    assert ScriptDirectory.from_config(config).get_current_head() == SCHEMA_REVISION


def tables(path: Path) -> dict[str, list[tuple[object, ...]]]:
    with sqlite3.connect(path) as db:
        names = [
            n for (n,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")
        ]
        result: dict[str, list[tuple[object, ...]]] = {
            name: list(db.execute(f"PRAGMA table_info({name})"))
            for name in names
            if name != "alembic_version"
        }
        result["indexes"] = sorted(
            db.execute("SELECT name, tbl_name FROM sqlite_master WHERE type = 'index'")
        )
        result["version"] = list(db.execute("SELECT * FROM alembic_version"))
    db.close()
    return result


@pytest.mark.parametrize("revision", REVISIONS)
def test_a_database_of_each_revision_becomes_what_a_fresh_one_is(tmp_path: Path, revision: str) -> None:
    fresh, old = tmp_path / "fresh.db", tmp_path / "old.db"
    for path in (fresh, old):
        engine = create_engine(f"sqlite:///{path}")
        if path is old:
            schema.upgrade(engine, revision)
        schema.prepare(engine)
        engine.dispose()
    assert {k: v for k, v in tables(old).items() if k != "indexes"} == {
        k: v for k, v in tables(fresh).items() if k != "indexes"
    }
    assert [i for i in tables(old)["indexes"] if "alembic" not in str(i)] == [
        i for i in tables(fresh)["indexes"] if "alembic" not in str(i)
    ]


async def test_a_database_of_a_later_release_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "metadata.db"
    store = Store(path)
    await store.open(check=False)
    await store.close()
    with sqlite3.connect(path) as db:
        db.execute("UPDATE alembic_version SET version_num = '9999'")
    db.close()
    with pytest.raises(StartupError, match="later release"):
        await Store(path).open(check=False)


async def test_a_file_that_is_no_database_is_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "metadata.db"
    path.write_bytes(b"not a database" * 100)
    with pytest.raises(StartupError, match=r"metadata\.db"):
        await Store(path).open(check=True)
