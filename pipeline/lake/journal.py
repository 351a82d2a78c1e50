"""The journal of a query in a table: which run may write, what was begun, what is done, what must be removed.

    <table>/_sluice/<query id>/lock                 held (flock) by the one driver that writes
                              /staging/<batch>/…    files that tasks are writing, or have written
                              /<batch, 20 digits>.json   the manifest of a batch

The rule: a manifest is written in one step (a file beside it, fsync, rename, fsync of the directory) **before** any
of its files gets its real name. For the Parquet table that is the commit itself: what a manifest names will be
moved, now or at the next start (`Manifest.files` say from where to where, and moving twice does no harm). For Delta
and Iceberg, whose own log is the commit, it is the note of an intention: at the next start the files of a manifest
that the log does not know are removed. Staged files that no manifest names are orphans of a crash, and are swept.

`through` adds up all batches: for each partition the first offset that this query wrote and the one after its last.
So the newest manifest alone has all that the query wrote, and earlier ones can be removed (`KEEP_MANIFESTS`).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from pathlib import Path

import msgspec

from pipeline.lake.errors import LakeError
from pipeline.lake.files import DataFile

HOME = "_sluice"
# Manifests that are kept for people to look at; a query of one batch a second would leave 86,400 a day.
KEEP_MANIFESTS = 1_000

Through = dict[str, dict[int, tuple[int, int]]]
"""By topic and partition: the first offset, and the one after the last."""


class Manifest(msgspec.Struct):
    """One batch of one query: its files, what it left out, and what all batches up to it cover."""

    query: str
    batch: int
    files: list[DataFile]
    through: Through
    rejected: int = 0


def fsync_directory(path: Path) -> None:
    """Make names in a directory durable: a rename is not before that."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_durably(path: Path, content: bytes) -> None:
    """Write a whole file in one step: readers see the old one, or this one, never a part."""
    beside = path.with_name(f".{path.name}.tmp")
    with beside.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    fsync_directory(path.parent)


def manifests(home: Path) -> list[Path]:
    """The manifests below a query's journal, oldest first."""
    return sorted(path for path in home.glob("*.json") if path.stem.isdigit())


def newest(table: Path) -> dict[str, Manifest]:
    """The newest manifest of every query that wrote into a table."""
    found = {}
    for home in (table / HOME).iterdir() if (table / HOME).is_dir() else ():
        if home.is_dir() and (last := manifests(home)[-1:]):
            manifest = msgspec.json.decode(last[0].read_bytes(), type=Manifest)
            found[manifest.query] = manifest
    return found


class Journal:
    """The journal of one query in one table directory. `open` takes the lock; one process at a time."""

    def __init__(self, table: Path, query: str) -> None:
        self.table, self.query = table, query
        self.home = table / HOME / query
        self.last: Manifest | None = None
        self._lock: int | None = None

    def open(self) -> None:
        """Take the lock and read the progress of the query. Raises LakeError if another process writes."""
        self.home.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(self.home / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            raise LakeError(
                f"another run of this query is writing into {self.table}; stop it first"
            ) from None
        self.last = newest(self.table).get(self.query)

    def close(self) -> None:
        """Let the lock go."""
        if self._lock is not None:
            os.close(self._lock)
        self._lock = None

    def staging(self, batch: int) -> Path:
        """Where tasks of a batch put their files."""
        return self.home / "staging" / str(batch)

    def sweep(self) -> int:
        """Remove the files that tasks of dead runs have left. Return their number. Only after roll-forward."""
        left = list((self.home / "staging").rglob("*.*"))
        shutil.rmtree(self.home / "staging", ignore_errors=True)
        return len(left)

    def check(self, files: list[DataFile]) -> None:
        """A `LakeError` if a file holds offsets that the table already has, from this query or another."""
        known = newest(self.table)
        if self.last is not None:
            known[self.query] = self.last
        for query, manifest in known.items():
            for file in files:
                first, behind = manifest.through.get(file.topic, {}).get(file.partition, (0, 0))
                if file.first < behind and file.last >= first:
                    raise LakeError(
                        f"{self.table} already holds {file.topic}-{file.partition} from offset {first} to "
                        f"{behind - 1}, written by {'this query' if query == self.query else 'query ' + query}; "
                        f"this batch has {file.first} to {file.last}. Start after it, or write elsewhere."
                    )

    def write(self, batch: int, files: list[DataFile], rejected: int = 0) -> Manifest:
        """Write the manifest of a batch: from here on its files count, whatever happens."""
        through: Through = {
            topic: dict(ranges) for topic, ranges in (self.last.through if self.last else {}).items()
        }
        for file in files:
            ranges = through.setdefault(file.topic, {})
            first, behind = ranges.get(file.partition, (file.first, file.last + 1))
            ranges[file.partition] = (min(first, file.first), max(behind, file.last + 1))
        manifest = Manifest(self.query, batch, files, through, rejected)
        write_durably(self.home / f"{batch:020}.json", msgspec.json.encode(manifest))
        return manifest

    def accept(self, manifest: Manifest) -> None:
        """The batch is in the table: forget its staging directory and manifests that are too old."""
        self.last = manifest
        shutil.rmtree(self.staging(manifest.batch), ignore_errors=True)
        for old in manifests(self.home)[:-KEEP_MANIFESTS]:
            old.unlink(missing_ok=True)

    def withdraw(self, manifest: Manifest) -> None:
        """The batch never came into the table's log: remove its files and its manifest."""
        for file in manifest.files:
            (self.table / file.path).unlink(missing_ok=True)
        with contextlib.suppress(FileNotFoundError):
            (self.home / f"{manifest.batch:020}.json").unlink()
        self.last = newest(self.table).get(self.query)

    def move(self, manifest: Manifest) -> None:
        """Give every file of a manifest its real name; what was moved before is left alone."""
        touched: set[Path] = set()
        for file in manifest.files:
            staged, final = self.table / file.staged, self.table / file.path
            if staged.exists():
                final.parent.mkdir(parents=True, exist_ok=True)
                staged.replace(final)
                touched.update([final.parent, *final.parent.parents])
            elif not final.exists():
                raise LakeError(f"{final} is named by a manifest and is missing; the table has lost its rows")
        for directory in touched:
            if directory.is_relative_to(self.table):
                fsync_directory(directory)
