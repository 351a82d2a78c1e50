"""Files on the disk: files replaced as a whole, descriptors that live as long as they are held."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from core.log import files
from core.log.files import FilePool, FileSlot
from tests.core.log.disk import Died, Disk


def test_a_file_is_replaced_as_a_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    disk = Disk(monkeypatch)
    files.write_whole(str(path), b"old", durable=True)
    effects = list(disk.calls)
    assert effects == ["open_file", "write", "sync", "rename", "sync_path"]
    for at in range(len(effects)):
        for how in ("kill", "tear", errno.ENOSPC):
            path.write_bytes(b"old")
            with disk.failing(how, at=at), pytest.raises((Died, OSError)):
                files.write_whole(str(path), b"newer", durable=True)
            assert path.read_bytes() in ((b"old",) if at < 4 else (b"newer",))
            if how == errno.ENOSPC and at < 3:
                with disk.failing(how, "write", at=0), pytest.raises(OSError, match="space"):
                    files.write_whole(str(path), b"newer", durable=True)
                assert os.listdir(tmp_path) == ["file"]


def test_without_durable_nothing_is_fsynced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(monkeypatch)
    files.write_whole(str(tmp_path / "file"), b"x", durable=False)
    assert disk.calls == ["open_file", "write", "rename"]


def test_a_short_write_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    monkeypatch.setattr(files, "write", lambda fd, data: real(fd, bytes(data)[:3]))
    files.write_whole(str(tmp_path / "file"), b"0123456789", durable=False)
    assert files.read_whole(str(tmp_path / "file")) == b"0123456789"


def test_a_missing_file_reads_as_none_and_may_be_removed(tmp_path: Path) -> None:
    path = str(tmp_path / "nothing")
    assert files.read_whole(path) is None
    files.remove_if_present(path)
    assert files.modified(path) == 0.0
    with pytest.raises(FileNotFoundError):
        files.size_of(path)


def test_created_files_are_private(tmp_path: Path) -> None:
    files.write_whole(str(tmp_path / "file"), b"x", durable=False)
    files.make_directory(str(tmp_path / "directory"))
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "directory").stat().st_mode & 0o777 == 0o700


def is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def test_the_longest_unused_file_is_closed_first(tmp_path: Path) -> None:
    pool = FilePool(2)
    slots = [FileSlot(pool, str(tmp_path / name)) for name in "abc"]
    a = slots[0].appending().fd
    b = slots[1].appending().fd
    slots[0].appending()
    slots[2].appending()
    assert len(pool) == 2
    assert slots[1].file is None
    assert slots[0].appending().fd == a
    assert slots[2].file is not None
    assert slots[2].file.fd == b or not is_open(b)


def test_an_evicted_file_stays_open_for_its_readers(tmp_path: Path) -> None:
    pool = FilePool(1)
    first, second = (FileSlot(pool, str(tmp_path / name)) for name in "ab")
    held = first.appending()
    os.write(held.fd, b"data")
    second.appending()
    assert first.file is None
    os.unlink(tmp_path / "a")
    assert os.pread(held.fileno(), 10, 0) == b"data"
    fd = held.fd
    del held
    assert not is_open(fd)


def test_a_file_is_opened_for_writing_only_when_it_is_written(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"data")
    slot = FileSlot(FilePool(5), str(tmp_path / "a"))
    reader = slot.reading()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.write(reader.fd, b"x")
    writer = slot.appending()
    assert writer is not reader
    os.write(writer.fd, b"+")
    assert slot.reading() is writer
    slot.release()
    assert slot.file is None
    os.pwrite(slot.updating().fd, b"D", 0)
    assert (tmp_path / "a").read_bytes() == b"Data+"


def test_reading_a_file_that_is_not_there_fails_and_keeps_no_slot(tmp_path: Path) -> None:
    pool = FilePool(5)
    with pytest.raises(FileNotFoundError):
        FileSlot(pool, str(tmp_path / "nothing")).reading()
    assert len(pool) == 0
