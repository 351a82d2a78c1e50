"""core.security.private_files: which files with a secret are used."""

from __future__ import annotations

import os
import stat

import pytest

from core.security import private_files

BROKER = 10_001


def status(mode: int, uid: int, kind: int = stat.S_IFREG) -> os.stat_result:
    """What the system says of a file."""
    return os.stat_result((kind | mode, 1, 1, 1, uid, BROKER, 1, 0, 0, 0))


@pytest.mark.parametrize(
    ("mode", "uid", "private"),
    [
        (0o600, BROKER, True),
        (0o400, BROKER, True),
        (0o640, BROKER, False),
        (0o604, BROKER, False),
        (0o620, BROKER, False),
        (0o440, 12_345, False),
        # A Secret of Kubernetes with fsGroup; a credential of systemd, with the entry of an access control list.
        (0o440, 0, True),
        (0o640, 0, True),
        (0o444, 0, False),
        (0o460, 0, False),
        (0o450, 0, False),
    ],
)
def test_a_file_is_for_its_owner_or_from_root_for_a_group(
    monkeypatch: pytest.MonkeyPatch, mode: int, uid: int, private: bool
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: BROKER)
    assert private_files.is_private(status(mode, uid)) is private


def test_root_itself_needs_no_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert not private_files.is_private(status(0o640, 0))
    assert private_files.is_private(status(0o600, 0))


def test_a_pipe_has_no_bits_that_mean_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    assert private_files.is_private(status(0o666, 0, stat.S_IFIFO))
