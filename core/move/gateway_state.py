"""The state of a gateway, from the data directory of an embedded broker to that of a gateway over a cluster.

Managed consumers, Idempotency-Keys with their answers, users, tokens, access rules and quotas are copied; all offsets
in them are translated through the journal. So clients continue with the same URLs, the same tokens of batches and the
same keys. What the cluster keeps itself is left out: topics, groups, committed offsets, transactional ids.

A moved consumer has no member id and no generation: the group of the target does not know it. It joins as a new
member, and keeps its outstanding batch if the group's committed offset is its position.

A key whose write is not answered and has nothing in a log is left out: its client's retry is a new write. A write
that has ended half-way is refused: the target cannot know which of its batches are there. Its client must retry at
the source before, which completes it.

The copy is made in a new file, which gets its name when all of it is right. The source is only read.
"""

from __future__ import annotations

import os
import sqlite3
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from core.directory import BROKER_DATABASE, GATEWAY_DATABASE
from core.metadata.models import SCHEMA_REVISION
from core.move.groups import GroupOffset, Offsets
from core.move.journal import Journal, JournalError
from core.types import TopicPartition
from core.vocabulary.consumers import Range

# Single values that belong to users, and not to the logs of a broker.
_KEPT_SETTINGS = ("security.fake.salt",)
# As `core.upstream.remote_broker` stores the cluster that its data belongs to.
_CLUSTER_ID = "upstream.cluster.id"
# What the cluster keeps, or what belongs to the logs of the source.
_LEFT_OUT = (
    "topics", "broker_configs", "groups", "group_members", "group_configs", "committed_offsets", "pending_offsets",
    "transactional_ids", "transaction_decisions",
)  # fmt: skip
# A consumer does not expire while the gateway is moved, nor right afterwards.
_GRACE_MS = 3_600_000
# As `core.metadata.idempotency` stores answers.
_PLAIN, _COMPRESSED, _COMPRESS_FROM = b"\0", b"\1", 1024

_ranges = msgspec.msgpack.Decoder(tuple[Range, ...]).decode
_encode = msgspec.msgpack.Encoder().encode

# Translates a position of the source. Raises JournalError.
Translate = Callable[[TopicPartition, int], int]
# Returns a stored answer with its offsets translated.
TranslateAnswer = Callable[[bytes, Translate], bytes]


class MovedState(NamedTuple):
    """What was copied: counts, and the consumers whose batches are outstanding."""

    consumers: int
    outstanding: int
    keys: int
    dropped_keys: int
    users: int


class HalfDone(NamedTuple):
    """A write under a key that has not ended: the time of the key, in ms."""

    created_ms: int


class _Plan(msgspec.Struct, array_like=True):
    """The part of a stored plan that is looked at; see `core.idempotency.plan`."""

    topic_id: bytes
    partitions: int
    sticky: int
    now_ms: int
    parts: tuple[Any, ...]


_plan = msgspec.msgpack.Decoder(_Plan).decode
_places = msgspec.msgpack.Decoder(list[Any]).decode


def move_state(
    source: Path,
    target: Path,
    journal: Journal,
    *,
    cluster_id: str,
    now_ms: int,
    translate_answer: TranslateAnswer,
    drop_half_done: bool = False,
) -> MovedState:
    """Copy the state of `source` to `target`, data directories of processes that are stopped.

    Raises JournalError: for a target that has a state already, an offset that is not copied, another release, writes
    that have ended half-way.
    """
    path, final = source / BROKER_DATABASE, target / GATEWAY_DATABASE
    if not path.is_file():
        raise JournalError(
            f"There is no {BROKER_DATABASE} in {source}: is it the data directory of a broker?"
        )
    if final.exists():
        raise JournalError(
            f"{target} has a {GATEWAY_DATABASE} already: choose an empty data directory for the gateway."
        )
    fresh = target / f"{GATEWAY_DATABASE}.moving"
    try:
        target.mkdir(mode=0o700, parents=True, exist_ok=True)
        for left in (fresh, Path(f"{fresh}-wal"), Path(f"{fresh}-shm")):
            left.unlink(missing_ok=True)
        with closing(sqlite3.connect(fresh, isolation_level=None)) as db:
            _copy(path, db)
            with _transaction(db):
                moved = _Moving(db, journal, translate_answer).run(
                    cluster_id=cluster_id, now_ms=now_ms, drop_half_done=drop_half_done
                )
            db.execute("VACUUM")
            db.execute("PRAGMA journal_mode = DELETE")
        _sync(fresh)
        fresh.rename(final)
        _sync(target)
    except (OSError, sqlite3.Error) as error:
        raise JournalError(f"The state cannot be copied to {target}: {error}.") from None
    return moved


def _copy(path: Path, db: sqlite3.Connection) -> None:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as source:
        revision = source.execute("SELECT version_num FROM alembic_version").fetchone()
        if revision is None or revision[0] != SCHEMA_REVISION:
            raise JournalError(
                f"The database {path} has the schema {revision and revision[0]}, this release {SCHEMA_REVISION}: "
                "start the broker once with this release, then stop it."
            )
        source.backup(db)


@contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[None]:
    db.execute("BEGIN")
    yield
    db.execute("COMMIT")


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def stored_groups(source: Path) -> dict[str, Offsets]:
    """Return the committed offsets of the groups in the data directory of a broker that is stopped.

    The position of a managed consumer counts as committed where its group has committed nothing: then the group of
    the target has it, and the consumer keeps its outstanding batch. Raises JournalError.
    """
    path = source / BROKER_DATABASE
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
            staged = db.execute("SELECT DISTINCT group_id FROM pending_offsets").fetchall()
            rows = db.execute(
                "SELECT group_id, topic, partition, committed_offset, metadata FROM committed_offsets"
            )
            found: dict[str, Offsets] = {}
            for group, topic, partition, offset, metadata in rows:
                found.setdefault(group, {})[TopicPartition(topic, partition)] = GroupOffset(offset, metadata)
            positions = db.execute("SELECT group_id, topic, partition, position FROM consumer_positions")
            for group, topic, partition, position in positions:
                tp = TopicPartition(topic, partition)
                found.setdefault(group, {}).setdefault(tp, GroupOffset(position, ""))
    except sqlite3.Error as error:
        raise JournalError(f"{path} cannot be read: {error}.") from None
    if staged:
        raise JournalError(
            f"Open transactions have staged offsets of the groups {', '.join(sorted(group for (group,) in staged))}: "
            "start the source, end the transactions, stop it again."
        )
    return found


class _Moving:
    """One copy whose offsets are translated in place."""

    def __init__(self, db: sqlite3.Connection, journal: Journal, translate_answer: TranslateAnswer) -> None:
        self._db = db
        self._journal = journal
        self._translate_answer = translate_answer
        self._topics = journal.topics()

    def run(self, *, cluster_id: str, now_ms: int, drop_half_done: bool) -> MovedState:
        outstanding = self._move_consumers(now_ms)
        self._move_positions()
        dropped = self._drop_unanswered(drop=drop_half_done)
        self._move_answers()
        for table in _LEFT_OUT:
            self._db.execute(f"DELETE FROM {table}")
        marks = ", ".join("?" * len(_KEPT_SETTINGS))
        self._db.execute(f"DELETE FROM settings WHERE name NOT IN ({marks})", _KEPT_SETTINGS)
        self._db.execute("INSERT INTO settings VALUES (?, ?)", (_CLUSTER_ID, cluster_id))
        return MovedState(
            self._count("consumers"),
            outstanding,
            self._count("idempotency_keys"),
            dropped,
            self._count("users"),
        )

    def _count(self, table: str) -> int:
        return int(self._db.execute(f"SELECT count(*) FROM {table}").fetchone()[0])

    def _translate(self, tp: TopicPartition, offset: int) -> int:
        return self._journal.translate(tp, offset)

    def _move_consumers(self, now_ms: int) -> int:
        """Translate outstanding ranges; return the number of consumers that have some."""
        rows = self._db.execute("SELECT group_id, name, outstanding, deadline_ms FROM consumers").fetchall()
        count = 0
        for group, name, outstanding, deadline_ms in rows:
            ranges = []
            for one in _ranges(outstanding):
                tp = TopicPartition(one.topic, one.partition)
                if tp.topic not in self._topics:
                    raise JournalError(
                        f"Consumer {name!r} of group {group!r} has a batch of {tp} outstanding, but that topic "
                        "is not moved. Copy that topic too, or acknowledge the batch at the source."
                    )
                first, after = self._translate(tp, one.first), self._translate(tp, one.next_offset)
                if first < after:
                    ranges.append(Range(one.topic, one.partition, first, after))
            count += bool(ranges)
            self._db.execute(
                "UPDATE consumers SET outstanding = ?, member_id = '', generation = -1, deadline_ms = ?"
                " WHERE group_id = ? AND name = ?",
                (_encode(ranges), max(deadline_ms, now_ms + _GRACE_MS), group, name),
            )
        return count

    def _move_positions(self) -> None:
        rows = self._db.execute(
            "SELECT group_id, name, topic, partition, position FROM consumer_positions"
        ).fetchall()
        for group, name, topic, partition, position in rows:
            key = group, name, topic, partition
            where = " WHERE group_id = ? AND name = ? AND topic = ? AND partition = ?"
            if topic not in self._topics:
                # It is not read on the target; a consumer of a pattern finds the topics that are there.
                self._db.execute("DELETE FROM consumer_positions" + where, key)
                continue
            moved = self._translate(TopicPartition(topic, partition), position)
            self._db.execute("UPDATE consumer_positions SET position = ?" + where, (moved, *key))

    def _drop_unanswered(self, *, drop: bool) -> int:
        """Delete keys without an answer; return their number. Raises JournalError if one has batches in a log."""
        rows = self._db.execute("SELECT plan, places FROM idempotency_keys WHERE answer IS NULL").fetchall()
        half_done = [plan for plan, places in rows if places and any(_places(places))]
        if half_done and not drop:
            names = {topic.source_id.bytes: name for name, topic in self._topics.items()}
            of = sorted({names.get(_plan(plan).topic_id, "a topic that is not moved") for plan in half_done})
            raise JournalError(
                f"{len(half_done)} writes with an Idempotency-Key have ended half-way (of {', '.join(of)}). Thaw the "
                "source, let their clients retry, and freeze it again; or give them up with --drop-half-done: then a "
                "retry writes all their records again."
            )
        self._db.execute("DELETE FROM idempotency_keys WHERE answer IS NULL")
        return len(rows)

    def _move_answers(self) -> None:
        rows = self._db.execute("SELECT digest, answer FROM idempotency_keys").fetchall()
        for digest, packed in rows:
            answer = packed[1:] if packed[:1] == _PLAIN else zlib.decompress(packed[1:])
            moved = self._translate_answer(answer, self._translate_known)
            if moved != answer:
                short = len(moved) < _COMPRESS_FROM
                stored = _PLAIN + moved if short else _COMPRESSED + zlib.compress(moved, 1)
                self._db.execute(
                    "UPDATE idempotency_keys SET answer = ?, size = size + ? WHERE digest = ?",
                    (stored, len(stored) - len(packed), digest),
                )

    def _translate_known(self, tp: TopicPartition, offset: int) -> int:
        """Translate the offset of an answer. One of a topic that is not moved stays: its records are not there."""
        return self._translate(tp, offset) if tp.topic in self._topics else offset
