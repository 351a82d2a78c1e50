"""A disk that fills up, fails or dies, put in the place of `core.log.files` for a test."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from core.log import files

EFFECTS = (
    "write", "pwrite", "truncate", "sync", "sync_path", "sync_everything", "rename", "unlink", "make_directory",
    "remove_directory", "set_modified", "open_file",
)  # fmt: skip


class Died(BaseException):
    """The process was killed here: nothing after this instruction happened."""


class Disk:
    """Counts every effect; from the `at`-th on (0 is the first) it does what `how` says.

    how = "kill": that effect and all later ones do not happen, `Died` is raised.
    how = "tear": like kill, but a write leaves half of its bytes.
    how = an errno: effects of `kinds` raise it, writes after a part of their bytes, until `heal`.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[str] = []
        self.at: int | None = None
        self.how: str | int = "kill"
        self.kinds: tuple[str, ...] = EFFECTS
        self.dead = False
        # Inode → bytes of the file that an fsync has covered.
        self.synced: dict[int, int] = {}
        self._real = {name: getattr(files, name) for name in EFFECTS}
        for name in EFFECTS:
            monkeypatch.setattr(files, name, self._wrap(name))

    def heal(self) -> None:
        """Let everything work again."""
        self.at = None
        self.dead = False

    def fail(self, how: str | int, *kinds: str, at: int = 0) -> None:
        """From the `at`-th effect of these kinds on (counted from now), let it go wrong."""
        self.calls.clear()
        self.how, self.kinds, self.at, self.dead = how, kinds or EFFECTS, at, False

    @contextmanager
    def failing(self, how: str | int, *kinds: str, at: int = 0) -> Iterator[None]:
        """`fail` for a while."""
        self.fail(how, *kinds, at=at)
        try:
            yield
        finally:
            self.heal()

    def _carry_out(self, name: str, real, args):  # type: ignore[no-untyped-def]
        result = real(*args)
        if name in ("sync", "sync_path"):
            status = os.stat(args[0])
            self.synced[status.st_ino] = status.st_size
        return result

    def lose_power(self, root: Path, chance: random.Random) -> None:
        """Drop what no fsync has covered: the ends of logs; other files may become empty or stay."""
        for path in root.rglob("*"):
            if path.is_dir():
                continue
            covered = self.synced.get(path.stat().st_ino, 0)
            if covered < path.stat().st_size and (".log" in path.name or chance.random() < 0.5):
                os.truncate(path, covered)

    def _wrap(self, name: str):  # type: ignore[no-untyped-def]
        real = self._real[name]

        def effect(*args):  # type: ignore[no-untyped-def]
            if self.dead:
                raise Died
            if name == "open_file" and not args[1] & (os.O_CREAT | os.O_TRUNC):
                return real(*args)
            if name not in self.kinds:
                return self._carry_out(name, real, args)
            self.calls.append(name)
            if self.at is None or len(self.calls) <= self.at:
                return self._carry_out(name, real, args)
            if isinstance(self.how, int):
                if (
                    name in ("write", "pwrite")
                    and self.how == errno.ENOSPC
                    and len(self.calls) == self.at + 1
                ):
                    return real(args[0], bytes(args[1])[: len(args[1]) // 2], *args[2:])
                raise OSError(self.how, os.strerror(self.how))
            if self.how == "tear" and name in ("write", "pwrite"):
                real(args[0], bytes(args[1])[: len(args[1]) // 2], *args[2:])
            self.dead = True
            raise Died

        return effect
