"""The journal of a query in a table: one writer, manifests in one step, what all batches cover, what is swept."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from pipeline.lake import journal as j
from pipeline.lake.errors import LakeError
from pipeline.lake.files import DataFile
from tests.pipeline.lake.rows import make, rows, write


def _staged(home: Path, batch: int, first: int, last: int, partition: int = 0) -> list[DataFile]:
    """Files of a batch as tasks leave them."""
    return write(make("parquet", home, "q"), batch, rows(first, last, partition))


@pytest.fixture
def journal(tmp_path: Path) -> j.Journal:
    made = j.Journal(tmp_path, "q")
    made.open()
    return made


def test_a_second_writer_of_a_query_is_refused_until_the_first_is_done(journal: j.Journal) -> None:
    second = j.Journal(journal.table, "q")
    with pytest.raises(LakeError, match="another run of this query"):
        second.open()
    journal.close()
    second.open()
    second.close()


def test_the_newest_manifest_tells_what_all_batches_cover(journal: j.Journal) -> None:
    for batch, (first, last) in enumerate([(0, 9), (10, 29)]):
        journal.accept(journal.write(batch, _staged(journal.table, batch, first, last)))
    assert j.newest(journal.table)["q"].through == {"orders": {0: (0, 30)}}
    with pytest.raises(LakeError, match="already holds orders-0 from offset 0 to 29, written by this query"):
        journal.check(_staged(journal.table, 2, 29, 40))
    journal.check(_staged(journal.table, 3, 30, 40))
    journal.check(_staged(journal.table, 4, 0, 9, partition=1))


def test_files_get_their_names_by_a_manifest_alone_and_moving_twice_does_no_harm(journal: j.Journal) -> None:
    manifest = journal.write(0, _staged(journal.table, 0, 0, 9))
    assert list(journal.table.glob("*.parquet")) == []
    for _ in range(2):
        journal.move(manifest)
    (file,) = journal.table.glob("*.parquet")
    file.unlink()
    with pytest.raises(LakeError, match="named by a manifest and is missing"):
        journal.move(manifest)


def test_what_no_manifest_names_is_swept_and_what_was_withdrawn_is_as_if_it_had_not_been(
    journal: j.Journal,
) -> None:
    journal.accept(journal.write(0, _staged(journal.table, 0, 0, 9)))
    late = journal.write(1, _staged(journal.table, 1, 10, 19))
    journal.move(late)
    journal.withdraw(late)
    assert list(journal.table.glob("*.parquet")) == []
    assert journal.last is not None and journal.last.batch == 0
    _staged(journal.table, 2, 20, 29)
    assert (journal.sweep(), journal.sweep()) == (1, 0)


def test_old_manifests_go_and_a_file_is_never_seen_half_written(
    journal: j.Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(j, "KEEP_MANIFESTS", 2)
    for batch in range(4):
        journal.accept(journal.write(batch, []))
    assert [int(path.stem) for path in j.manifests(journal.home)] == [2, 3]
    (journal.home / "00000000000000000004.json.tmp").write_bytes(b"{")
    assert j.newest(journal.table)["q"].batch == 3
    assert msgspec.json.decode(j.manifests(journal.home)[-1].read_bytes())["batch"] == 3
