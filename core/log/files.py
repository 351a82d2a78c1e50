"""The only module that changes the disk: every write, fsync, rename and unlink of the log is a call of it.

Callers write `files.write(...)` and look the name up at each call. So a test or the simulation can replace it by a
disk that fills up, fails, or dies at the N-th call. Reads change nothing and use `os.pread` on a descriptor.

A `FilePool` keeps the descriptors and closes the least recently used one first. An `OpenFile` closes itself when no
object holds it any more. So a file that is evicted, renamed or unlinked stays readable for the `FileSlice` of a slow
reader. The readers of a segment need not be counted.
"""

# Paths are text here: Path objects for 10,000 partitions would be tens of megabytes.
# ruff: noqa: PTH102, PTH105, PTH106, PTH108, PTH116, PTH120

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
from collections import OrderedDict
from collections.abc import Callable

FILE_MODE = 0o600
DIRECTORY_MODE = 0o700

# The bare system calls of the hot path: a wrapper would cost more than the checks it could make.
write = os.write
pwrite = os.pwrite

# sync_file_range(2), which Python's os module lacks. It begins the writeback and does not consume the file's errors.
_SYNC_FILE_RANGE_WRITE = 2


def _find_sync_file_range() -> Callable[[int, int, int, int], int] | None:
    try:
        function = ctypes.CDLL(None).sync_file_range
    except (AttributeError, OSError):  # not Linux with glibc
        return None
    function.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    function.restype = ctypes.c_int
    return function


_sync_file_range = _find_sync_file_range()


def open_file(path: str, flags: int) -> int:
    """Open `path` and return its descriptor; created files are private to the broker's user."""
    return os.open(path, flags | os.O_CLOEXEC, FILE_MODE)


def truncate(fd: int, length: int) -> None:
    """Cut the file to `length` bytes."""
    os.ftruncate(fd, length)


def sync(fd: int) -> None:
    """Wait until the file's bytes are on the disk. Blocks for milliseconds: call it in a thread."""
    os.fdatasync(fd)


def begin_sync(fd: int) -> None:
    """Let the kernel begin to write the file's bytes. It promises nothing; `sync` reports the errors.

    It may wait while the queue of the disk is full: call it in a thread. Systems without such a call do nothing.
    """
    if _sync_file_range is not None:
        _sync_file_range(fd, 0, 0, _SYNC_FILE_RANGE_WRITE)


def sync_path(path: str) -> None:
    """Wait until a small file, or the names in a directory, are on the disk. Blocks: call it in a thread."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_everything() -> None:
    """Let the system write all its dirty pages; `sync` on each file reports errors. Blocks, for seconds."""
    os.sync()


def rename(old: str, new: str) -> None:
    """Give a file or directory another name, replacing a file of that name atomically."""
    os.replace(old, new)


def unlink(path: str) -> None:
    """Remove a file."""
    os.unlink(path)


def make_directory(path: str) -> None:
    """Make a directory that only the broker's user can enter."""
    os.mkdir(path, DIRECTORY_MODE)


def remove_directory(path: str) -> None:
    """Remove an empty directory."""
    os.rmdir(path)


def set_modified(path: str, seconds: float) -> None:
    """Set a file's modification time."""
    os.utime(path, (seconds, seconds))


def write_whole(path: str, data: bytes, *, durable: bool) -> None:
    """Put `data` into the file `path`, all or nothing: a temporary file, then a rename over the old one.

    With `durable`, contents and name are on the disk on return (blocks: call it in a thread). Without it the
    file survives a crash of the process, but not of the machine. Its format must then show whether it is complete.
    Raises OSError and leaves the old file as it was.
    """
    temporary = path + ".tmp"
    fd = open_file(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        try:
            view = memoryview(data)
            while view:
                view = view[write(fd, view) :]
            if durable:
                sync(fd)
        finally:
            os.close(fd)
        rename(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            unlink(temporary)
        raise
    if durable:
        sync_path(os.path.dirname(path))


def size_of(path: str) -> int:
    """Return the size of a file in bytes. Raises FileNotFoundError."""
    return os.stat(path).st_size


def modified(path: str) -> float:
    """Return when a file was last written, seconds since the Unix epoch; 0 if there is none."""
    with contextlib.suppress(OSError):
        return os.stat(path).st_mtime
    return 0.0


def read_whole(path: str) -> bytes | None:
    """Return the contents of a small file, or None if there is no such file."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        chunks = []
        while chunk := os.read(fd, 1 << 20):
            chunks.append(chunk)
        return b"".join(chunks)
    finally:
        os.close(fd)


def remove_if_present(path: str) -> None:
    """Remove a file, if it is there."""
    with contextlib.suppress(FileNotFoundError):
        unlink(path)


class OpenFile:
    """An open descriptor. It is closed when no other object refers to this one."""

    __slots__ = ("fd", "writable")

    def __init__(self, fd: int, writable: bool) -> None:
        self.fd = fd
        self.writable = writable

    def fileno(self) -> int:
        """Return the descriptor."""
        return self.fd

    def __del__(self) -> None:
        fd, self.fd = self.fd, -1
        if fd >= 0:
            with contextlib.suppress(OSError):
                os.close(fd)


class FileSlot:
    """A file by its path that is opened when it is needed, and may be closed by the pool in between."""

    __slots__ = ("_pool", "file", "path")

    def __init__(self, pool: FilePool, path: str) -> None:
        self._pool = pool
        self.path = path
        self.file: OpenFile | None = None

    def reading(self) -> OpenFile:
        """Return the open file, for reading. Raises FileNotFoundError if it does not exist."""
        file = self.file
        if file is None:
            return self._pool.open(self, os.O_RDONLY)
        self._pool.touch(self)
        return file

    def appending(self) -> OpenFile:
        """Return the open file, for appending; created if it does not exist.

        Only files that are written are opened for writing, so that a log on a read-only disk can be read.
        """
        file = self.file
        if file is None or not file.writable:
            return self._pool.open(self, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        self._pool.touch(self)
        return file

    def updating(self) -> OpenFile:
        """Return the open file, for writing anywhere in it; created if it does not exist."""
        file = self.file
        if file is None or not file.writable:
            return self._pool.open(self, os.O_RDWR | os.O_CREAT)
        self._pool.touch(self)
        return file

    def release(self) -> None:
        """Forget the open file; it is closed once no reader has it."""
        if self.file is not None:
            self._pool.drop(self)


class FilePool:
    """At most `limit` open files; the longest unused is closed first, unless a reader still holds it.

    A file that is evicted with bytes not yet fsynced loses nothing: a write error that was not reported yet is
    reported to the next one that opens the file (Linux, errseq_t).
    """

    __slots__ = ("_limit", "_order")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._order: OrderedDict[FileSlot, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._order)

    def touch(self, slot: FileSlot) -> None:
        """Note that the slot's file was used now."""
        self._order.move_to_end(slot)

    def open(self, slot: FileSlot, flags: int) -> OpenFile:
        """Open the slot's file. Close the longest unused ones if the pool is full."""
        while len(self._order) >= self._limit:
            self._evict()
        try:
            fd = open_file(slot.path, flags)
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE) or not self._order:
                raise
            # Sockets share the process's descriptors; give half of ours back and try once more.
            for _ in range(len(self._order) // 2 + 1):
                self._evict()
            fd = open_file(slot.path, flags)
        slot.file = OpenFile(fd, writable=flags & os.O_RDWR != 0)
        self._order[slot] = None
        self._order.move_to_end(slot)
        return slot.file

    def drop(self, slot: FileSlot) -> None:
        """Forget the slot's file."""
        slot.file = None
        self._order.pop(slot, None)

    def _evict(self) -> None:
        slot, _ = self._order.popitem(last=False)
        slot.file = None
