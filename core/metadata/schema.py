"""Brings a database to the newest schema: a fresh one at once, an older one through Alembic's revisions.

Alembic costs 0.2 s and 12 MB to import, so it is only loaded when there is something to migrate.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path

from sqlalchemy import Connection, Engine, inspect, text

from core.errors import StartupError
from core.metadata.models import SCHEMA_REVISION, metadata


def current_revision(connection: Connection) -> str | None:
    """The revision that the database is at; None for an empty database."""
    if "alembic_version" not in inspect(connection).get_table_names():
        return None
    row = connection.execute(text("SELECT version_num FROM alembic_version")).first()
    return str(row[0]) if row else None


def prepare(engine: Engine, before: Callable[[str], None] | None = None) -> None:
    """Make the schema of `engine`'s database the newest one.

    `before` is called with the revision of an older database before anything of it changes; if the process dies, the
    next start calls it again. Raises StartupError when the database comes from a later release: going back is not
    possible.
    """
    with engine.begin() as connection:
        _begin(connection)
        revision = current_revision(connection)
        if revision == SCHEMA_REVISION:
            return
        if revision is None:
            metadata.create_all(connection, checkfirst=False)  # it is empty: no need to look for each table
            connection.execute(text("CREATE TABLE alembic_version (version_num VARCHAR(32) PRIMARY KEY)"))
            connection.execute(
                text("INSERT INTO alembic_version (version_num) VALUES (:revision)"),
                {"revision": SCHEMA_REVISION},
            )
            return
        if revision > SCHEMA_REVISION:
            raise StartupError(
                f"The data directory was written by a later release (schema {revision}; this one knows "
                f"{SCHEMA_REVISION}). Start that release, or a newer one."
            )
    if before is not None:
        before(revision)
    upgrade(engine)


def upgrade(engine: Engine, revision: str = "head") -> None:
    """Run Alembic's upgrade to `revision` on the engine's database, in one transaction."""
    from alembic import command
    from alembic.config import Config

    found = importlib.util.find_spec("migrations")
    if found is None or found.origin is None:
        raise StartupError(
            "The package 'migrations' is missing from this installation; install Sluice again."
        )
    config = Config()
    config.set_main_option("script_location", str(Path(found.origin).parent))
    with engine.begin() as connection:
        _begin(connection)
        config.attributes["connection"] = connection
        command.upgrade(config, revision)


def _begin(connection: Connection) -> None:
    """Begin a transaction now: Python's sqlite3 begins none for DDL, and a death would leave half a revision."""
    connection.exec_driver_sql("BEGIN IMMEDIATE")
