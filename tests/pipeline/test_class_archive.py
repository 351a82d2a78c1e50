"""Short Spark jobs use the archive of classes where there is one, and run without it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pipeline import class_archive


def test_an_archive_that_is_there_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = tmp_path / "classes.jsa"
    monkeypatch.setattr(class_archive, "archive", lambda: there)
    assert class_archive.java_options() == class_archive.QUICK
    there.touch()
    assert class_archive.java_options().startswith(class_archive.QUICK)
    assert f"-XX:SharedArchiveFile={there}" in class_archive.java_options().split()
    assert class_archive.make(), "what is there is not made again"
    monkeypatch.setattr(class_archive, "archive", lambda: None)
    assert class_archive.java_options() == class_archive.QUICK
    assert not class_archive.make()
