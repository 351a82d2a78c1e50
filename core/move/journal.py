"""The journal of a move: which offsets of the source are which of the target, and what is on its way.

A SQLite file in the working directory of the move. It is written before batches are sent, and again once the target
has them. So after a kill -9 each batch is in one of three states, and the target's log says in which:

    not planned      nothing of it was sent
    planned          it has a producer id and a sequence here. It is in the target's log under them, or it is not
    done             its offsets in both logs are known: a run

A planned batch keeps its numbers when it is sent again, so that the target does not take it a second time.

A run is a range of offsets that follow each other in both logs; a run grows as long as the next batch follows. A
topic without gaps has one run for each partition, however many records it has.

The methods are synchronous: each commit is one fsync, and the move has nothing else to do meanwhile.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple
from uuid import UUID

import msgspec

from core.move.batches import Run, runs_of
from core.types import TopicPartition

FILE = "journal.db"
VERSION = "1"

_TABLES = """
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS topics (
    name TEXT PRIMARY KEY, source_id BLOB NOT NULL, target_id BLOB NOT NULL, configs TEXT NOT NULL,
    finished INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS partitions (
    topic TEXT NOT NULL, partition INTEGER NOT NULL, source_start INTEGER NOT NULL, source_next INTEGER NOT NULL,
    target_next INTEGER NOT NULL, producer_id INTEGER NOT NULL, producer_epoch INTEGER NOT NULL,
    sequence INTEGER NOT NULL, planned BLOB NOT NULL, PRIMARY KEY (topic, partition)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS runs (
    topic TEXT NOT NULL, partition INTEGER NOT NULL, source INTEGER NOT NULL, target INTEGER NOT NULL,
    count INTEGER NOT NULL, PRIMARY KEY (topic, partition, source)
) WITHOUT ROWID;
"""


class JournalError(Exception):
    """The journal cannot be used, or does not have what is asked for: one sentence for the operator."""


class Planned(msgspec.Struct, array_like=True, frozen=True):
    """A batch that may have been sent: its sequence, and its records' offsets in the source as (first, number)."""

    sequence: int
    count: int
    sources: tuple[tuple[int, int], ...]
    next_source: int


class MovedTopic(NamedTuple):
    """A topic of the move. `configs` are the settings that the source has for it; `finished`: the target has them."""

    name: str
    source_id: UUID
    target_id: UUID
    configs: dict[str, str]
    finished: bool


class Progress(msgspec.Struct):
    """How far a partition is. `producer_id` −1: nothing was sent yet."""

    source_start: int
    source_next: int
    target_next: int
    producer_id: int = -1
    producer_epoch: int = -1
    sequence: int = 0
    planned: tuple[Planned, ...] = ()


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[Planned, ...]).decode


class Journal:
    """The journal in a working directory."""

    def __init__(self, directory: Path, *, create: bool) -> None:
        """Open it. Raises JournalError if there is none and `create` is false, or if it cannot be read."""
        path = directory / FILE
        if not create and not path.is_file():
            raise JournalError(
                f"There is no journal in {directory}: run `sluice move copy --work-dir {directory} …` first."
            )
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(path, timeout=1.0, isolation_level=None)
            # A journal that another process writes is not touched.
            self._db.execute("PRAGMA locking_mode = EXCLUSIVE" if create else "PRAGMA query_only = OFF")
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            if create:
                self._db.execute("BEGIN IMMEDIATE")
                self._db.execute("COMMIT")
            self._db.executescript(_TABLES)
        except (OSError, sqlite3.Error) as error:
            busy = "locked" in str(error)
            what = "is in use by another `sluice move`" if busy else f"cannot be opened ({error})"
            raise JournalError(f"The journal {path} {what}.") from None
        self._check_version(path)

    def _check_version(self, path: Path) -> None:
        version = self.facts().get("version")
        if version is None:
            self._db.execute("INSERT INTO facts VALUES ('version', ?)", (VERSION,))
        elif version != VERSION:
            self.close()
            raise JournalError(f"The journal {path} has version {version}; this release reads {VERSION}.")

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    # --- which clusters, which topics ----------------------------------------------------------------------

    def facts(self) -> dict[str, str]:
        """Return the single values: `version`, `source` and `target` (cluster ids)."""
        return dict(self._db.execute("SELECT name, value FROM facts"))

    def belongs_to(self, source: str, target: str) -> None:
        """Note the ids of both clusters. Raises JournalError if the journal is of a move between others."""
        facts = self.facts()
        for name, cluster_id in (("source", source), ("target", target)):
            known = facts.get(name)
            if known is None:
                self._db.execute("INSERT INTO facts VALUES (?, ?)", (name, cluster_id))
            elif known != cluster_id:
                raise JournalError(
                    f"This journal belongs to a move whose {name} is the cluster {known}, not {cluster_id}. "
                    "Use another --work-dir for another move."
                )

    def topics(self) -> dict[str, MovedTopic]:
        """Return the topics of the move, by name."""
        rows = self._db.execute(
            "SELECT name, source_id, target_id, configs, finished FROM topics ORDER BY name"
        )
        return {
            name: MovedTopic(
                name, UUID(bytes=source), UUID(bytes=target), json.loads(configs), bool(finished)
            )
            for name, source, target, configs, finished in rows
        }

    def put_topic(self, topic: MovedTopic) -> None:
        """Store a topic, new or changed."""
        values = (
            topic.name,
            topic.source_id.bytes,
            topic.target_id.bytes,
            json.dumps(topic.configs),
            topic.finished,
        )
        self._db.execute("INSERT OR REPLACE INTO topics VALUES (?, ?, ?, ?, ?)", values)

    # --- how far -------------------------------------------------------------------------------------------

    def progress(self) -> dict[TopicPartition, Progress]:
        """Return how far each partition is."""
        rows = self._db.execute("SELECT * FROM partitions ORDER BY topic, partition")
        return {
            TopicPartition(topic, partition): Progress(
                start, source, target, producer, epoch, sequence, _decode(planned)
            )
            for topic, partition, start, source, target, producer, epoch, sequence, planned in rows
        }

    def store(self, changed: Mapping[TopicPartition, tuple[Progress, Sequence[Run]]]) -> None:
        """Store the progress of partitions, with the runs that are new; durable when it returns."""
        if not changed:
            return
        self._db.execute("BEGIN IMMEDIATE")
        try:
            for tp, (progress, runs) in changed.items():
                for run in runs:
                    self._add(tp, run)
                values = (*tp, *msgspec.structs.astuple(progress)[:-1], _encode(progress.planned))
                self._db.execute(
                    "INSERT OR REPLACE INTO partitions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", values
                )
            self._db.execute("COMMIT")
        except BaseException:
            self._db.execute("ROLLBACK")
            raise

    def _add(self, tp: TopicPartition, run: Run) -> None:
        last = self._last_run(tp)
        if last is not None and (last.source + last.length, last.target + last.length) == (
            run.source,
            run.target,
        ):
            self._db.execute(
                "UPDATE runs SET count = count + ? WHERE topic = ? AND partition = ? AND source = ?",
                (run.length, *tp, last.source),
            )
        else:
            self._db.execute("INSERT INTO runs VALUES (?, ?, ?, ?, ?)", (*tp, *run))

    def _last_run(self, tp: TopicPartition) -> Run | None:
        row = self._db.execute(
            "SELECT source, target, count FROM runs WHERE topic = ? AND partition = ? ORDER BY source DESC LIMIT 1",
            tp,
        ).fetchone()
        return None if row is None else Run(*row)

    # --- translation ---------------------------------------------------------------------------------------

    def runs(self, tp: TopicPartition) -> Iterator[Run]:
        """Yield the runs of a partition, by offset."""
        rows = self._db.execute(
            "SELECT source, target, count FROM runs WHERE topic = ? AND partition = ? ORDER BY source", tp
        )
        return (Run(*row) for row in rows)

    def translate(self, tp: TopicPartition, offset: int) -> int:
        """Return the offset in the target of the first record of the source that is at `offset` or after it.

        `offset` is a position: the next offset to read. The end of what is copied becomes the end in the target.
        Raises JournalError for a partition that is not moved, and for an offset beyond what is copied.
        """
        row = self._db.execute(
            "SELECT source_next, target_next FROM partitions WHERE topic = ? AND partition = ?", tp
        ).fetchone()
        if row is None:
            raise JournalError(f"{tp} is not part of this move.")
        source_next, target_next = row
        if offset > source_next:
            raise JournalError(
                f"Offset {offset} of {tp} is not copied yet; the copy is at {source_next}. "
                "Run `sluice move copy` first."
            )
        before = self._db.execute(
            "SELECT source, target, count FROM runs WHERE topic = ? AND partition = ? AND source <= ?"
            " ORDER BY source DESC LIMIT 1",
            (*tp, offset),
        ).fetchone()
        if before is not None:
            source, target, count = before
            return int(target + min(offset - source, count))
        first = self._db.execute(
            "SELECT target FROM runs WHERE topic = ? AND partition = ? ORDER BY source LIMIT 1", tp
        ).fetchone()
        return int(target_next if first is None else first[0])

    def equal_offsets(self, tp: TopicPartition) -> bool:
        """Return whether each record has the same offset in both logs."""
        row = self._db.execute(
            "SELECT count(*) FROM runs WHERE topic = ? AND partition = ? AND source <> target", tp
        ).fetchone()
        return int(row[0]) == 0


def runs_of_batches(batches: Iterable[Planned], target: int) -> Iterator[Run]:
    """Yield the runs of batches that lie one after the other in the target, from `target` on."""
    for batch in batches:
        yield from runs_of(batch.sources, target)
        target += batch.count
