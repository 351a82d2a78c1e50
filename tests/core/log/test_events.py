"""What logs tell a subscriber, and what they do with its files."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from core.log.events import WatchedLog
from core.log.flush import Chore, FlushTask
from core.log.segment import SWAP_SUFFIX, Segment
from core.log.shared import LogShared
from core.log.trash import Removal
from core.records.header import BatchHeader
from core.records.record import Record
from tests.core.log.disk import Disk
from tests.core.log.shelf import Shelf, append, flush, read_all, records, values
from tests.core.log.test_cleaner import clean, compacted


class Tally:
    """A subscriber that keeps a file beside each compacted segment, and writes down what it is told."""

    sidecar_suffixes: Sequence[str] = (".tally",)
    lasting_files: Sequence[str] = ("tallies",)

    def __init__(self) -> None:
        self.events: list[str] = []
        self.ready = self.holds = True
        self.error: OSError | None = None

    def removing(self, log: WatchedLog, segment: Segment) -> None:
        if self.error is not None:
            raise self.error
        self.events.append(f"removing {segment.base_offset}")

    def cut(self, log: WatchedLog) -> None:
        self.events.append(f"cut {log.offsets.log_end_offset}")

    def closed(self, log: WatchedLog) -> None:
        self.events.append(f"closed {log.tp}")

    def before_compaction(self, log: WatchedLog, until: int) -> Iterator[Chore]:
        yield FlushTask([], [])
        self.events.append("prepared")

    def compacting(self, log: WatchedLog, group: Sequence[Segment]) -> Part | None:
        return Part(self, group) if self.ready else None


class Part:
    """Counts what is kept of a group."""

    def __init__(self, tally: Tally, group: Sequence[Segment]) -> None:
        self._tally = tally
        self._path = group[0].stem + ".tally"
        self._count = 0
        self.paths = [self._path + SWAP_SUFFIX]

    def take(
        self,
        segment: Segment,
        header: BatchHeader,
        records: Sequence[Record],
        kept: bytes | bytearray | None,
        position: int,
        *,
        whole: bool,
    ) -> None:
        assert not whole or len(kept or b"") == header.size
        self._count += kept is not None

    def finish(self, size: int) -> None:
        Path(self._path + SWAP_SUFFIX).write_text(str(self._count))

    def hold(self) -> bool:
        self._tally.events.append("hold")
        return self._tally.holds

    def swap(self) -> None:
        Path(self._path + SWAP_SUFFIX).rename(self._path)

    def done(self) -> None:
        self._tally.events.append("done")

    def release(self) -> None:
        self._tally.events.append("release")

    def discard(self) -> None:
        Path(self._path + SWAP_SUFFIX).unlink(missing_ok=True)
        self._tally.events.append("discard")


class WatchedShelf(Shelf):
    tally = Tally()

    def share(self) -> LogShared:
        shared = super().share()
        self.tally = Tally()
        shared.subscribe(self.tally)
        return shared


def filled(tmp_path: Path) -> WatchedShelf:
    return compacted(tmp_path, WatchedShelf)


def test_retention_asks_before_it_removes_and_takes_sidecars_along(tmp_path: Path) -> None:
    shelf = WatchedShelf(tmp_path, segment_bytes=300)
    log = shelf.open()
    for i in range(9):
        append(log, records(f"{i}" * 60))
    first, second, *_ = log.segments.all
    Path(first.stem + ".tally").write_text("1")
    shelf.tally.error = OSError(28, "No space left on device")
    log.remove_segments(1)
    assert log.segments.all[0] is first
    shelf.tally.error = None
    log.remove_segments(1)
    assert log.segments.all[0] is second
    assert shelf.tally.events == ["removing 0"]
    assert Path(first.stem + ".tally.deleted").exists()


def test_a_cut_a_new_start_and_the_end_are_told(tmp_path: Path) -> None:
    shelf = WatchedShelf(tmp_path)
    log = shelf.open()
    for i in range(9):
        append(log, records(f"{i}"))
    log.begin_cut(4)
    log.truncate_to(4)
    log.start_at(100)
    log.close()
    assert shelf.tally.events == ["cut 4", "cut 100", "closed orders-0"]


def put(log: object, count: int = 40) -> None:
    for i in range(count):
        append(log, records(f"value {i}", key=b"k%d" % (i % 5)))  # type: ignore[arg-type]
    flush(log)  # type: ignore[arg-type]


def test_a_companion_is_swapped_in_with_the_compacted_segment(tmp_path: Path) -> None:
    shelf = filled(tmp_path)
    log = shelf.open()
    put(log)
    assert clean(shelf, log) > 0
    assert shelf.tally.events[0] == "prepared"
    assert shelf.tally.events[1:4] == ["hold", "done", "release"]
    assert list(shelf.directory.glob("*.tally"))
    assert not list(shelf.directory.glob("*.swap"))


@pytest.mark.parametrize("what", ["ready", "holds"])
def test_a_subscriber_may_refuse_a_compaction_until_the_next_pass(tmp_path: Path, what: str) -> None:
    shelf = filled(tmp_path)
    log = shelf.open()
    put(log)
    before = values(log)
    setattr(shelf.tally, what, False)
    assert clean(shelf, log) == 0
    assert values(log) == before
    assert not list(shelf.directory.glob("*.swap"))
    setattr(shelf.tally, what, True)
    assert clean(shelf, log) > 0


def test_a_compaction_that_dies_has_both_files_or_neither(tmp_path: Path) -> None:
    source = filled(tmp_path / "source")
    log = source.open()
    put(log)
    log.close()
    for at in itertools.count():
        shelf = source.copy(tmp_path / str(at))
        log = shelf.open(recovery_point=40, clean=True)
        with pytest.MonkeyPatch.context() as patch:
            disk = Disk(patch)
            disk.fail("kill", at=at)
            try:
                clean(shelf, log)
                died = disk.dead
            except BaseException:
                died = True
            disk.heal()
        log = shelf.open(recovery_point=40, compacted=40)
        assert read_all(log)[-1].offset == 39
        assert not [p for p in shelf.directory.iterdir() if ".swap" in p.name]
        if not died:
            return


def test_lasting_files_are_on_the_disk_before_a_removed_segment_is_unlinked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tallies").write_text("")
    gone = tmp_path / "00000000000000000000.log.deleted"
    gone.write_text("")
    disk = Disk(monkeypatch)
    Removal([str(gone)], ["tallies", "nothing"]).run()
    assert disk.calls == ["sync_path", "sync_path", "unlink"]
