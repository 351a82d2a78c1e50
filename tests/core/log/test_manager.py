"""All logs of a broker: start, stop, crash, create, delete, checkpoints, the turns of background work."""

from __future__ import annotations

import os
import shutil
import time
import uuid
from dataclasses import replace
from pathlib import Path

import pytest

from core.errors import BrokerError, ErrorCode
from core.log import files
from core.log.checkpoint import CLEAN_SHUTDOWN, LOG_START_OFFSETS, RECOVERY_POINTS, read_offsets
from core.log.manager import SizeTask
from core.topic_config import TopicConfig
from core.types import TopicPartition
from tests.core.log.disk import Disk
from tests.core.log.home import CONFIG, ID, OTHER, TP, Home, open_files
from tests.core.log.shelf import append, flush, read_all, records, values


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def test_a_new_data_directory_is_made_private(home: Home) -> None:
    manager = home.start()
    assert home.root.stat().st_mode & 0o777 == 0o700
    home.create(manager)
    assert (home.root / "orders-0").stat().st_mode & 0o777 == 0o700
    text = (home.root / "orders-0" / "partition.metadata").read_text()
    assert text == "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAASNA"


def test_a_partition_that_is_not_there_is_unknown(home: Home) -> None:
    with pytest.raises(BrokerError) as caught:
        home.start().get(TP)
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_logs_come_back_after_a_clean_stop(home: Home) -> None:
    manager = home.start()
    home.create(manager)
    home.create(manager, OTHER)
    append(manager.get(TP), records("a", "b"))
    append(manager.get(OTHER), records("c"))
    manager.close()
    assert CLEAN_SHUTDOWN in home.names()
    assert read_offsets(str(home.root / RECOVERY_POINTS)) == {TP: 2, OTHER: 1}
    manager = home.start()
    assert CLEAN_SHUTDOWN not in home.names()
    assert values(manager.get(TP)) == [b"a", b"b"]
    assert values(manager.get(OTHER)) == [b"c"]
    assert manager.get(TP).flushed_offset == 2
    assert (len(manager), TP in manager) == (2, True)


def test_a_clean_start_opens_nothing(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = home.start()
    for i in range(200):
        home.create(manager, TopicPartition("many", i))
        append(manager.get(TopicPartition("many", i)), records("x"))
    manager.close()
    opened: list[str] = []
    real = os.open
    monkeypatch.setattr(os, "open", lambda path, *rest: opened.append(path) or real(path, *rest))
    scanned: list[str] = []
    real_scan = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: scanned.append(path) or real_scan(path))
    home.start()
    assert scanned == [str(home.root)]
    assert not [path for path in opened if "many-" in str(path)]


def test_ten_thousand_partitions_start_in_a_moment(home: Home) -> None:
    manager = home.start()
    for i in range(10_000):
        home.topics[TopicPartition(f"t{i // 10}", i % 10)] = (ID, CONFIG)
        os.mkdir(home.root / f"t{i // 10}-{i % 10}")
    manager.close()
    started = time.process_time()
    home.start()
    assert time.process_time() - started < 1.0


def test_after_a_crash_every_log_is_checked(home: Home) -> None:
    manager = home.start()
    home.create(manager)
    log = manager.get(TP)
    append(log, records("a", "b"))
    flush(log)
    manager.checkpoint()
    append(log, records("c"))
    path = Path(log.segments.active.log.path)
    with path.open("ab") as file:
        file.write(b"torn")
    size = path.stat().st_size
    manager = home.start()
    assert path.stat().st_size == size - 4
    log = manager.get(TP)
    assert values(log) == [b"a", b"b", b"c"]
    assert (log.flushed_offset, manager.unflushed()) == (2, [log])
    manager.close()
    assert CLEAN_SHUTDOWN in home.names()


def test_only_the_tail_after_the_checkpoint_is_scanned_after_a_crash(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = home.start()
    home.create(manager, config=TopicConfig())
    log = manager.get(TP)
    for _ in range(50):
        append(log, records("x" * 100_000))
    flush(log)
    manager.checkpoint()
    append(log, records("y" * 100_000))
    read = 0
    real = os.pread

    def counted(fd: int, size: int, position: int) -> bytes:
        nonlocal read
        data = real(fd, size, position)
        read += len(data)
        return data

    monkeypatch.setattr(os, "pread", counted)
    manager = home.start()
    assert manager.get(TP).offsets.log_end_offset == 51
    assert read < 300_000


def test_the_marker_is_not_written_when_a_log_has_failed(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = home.start()
    home.create(manager)
    append(manager.get(TP), records("a"))
    with Disk(monkeypatch).failing(5, "sync"):
        manager.close()
    assert CLEAN_SHUTDOWN not in home.names()
    assert values(home.start().get(TP)) == [b"a"]


def test_a_log_that_cannot_be_opened_does_not_stop_the_start(home: Home) -> None:
    manager = home.start()
    home.create(manager)
    home.create(manager, OTHER)
    append(manager.get(OTHER), records("a"))
    manager.close()
    shutil.rmtree(home.root / "orders-0")
    (home.root / "orders-0").write_text("a file where a directory should be")
    for clean in (True, False):
        if not clean:
            (home.root / CLEAN_SHUTDOWN).unlink()
        manager = home.start()
        assert values(manager.get(OTHER)) == [b"a"]
        with pytest.raises(BrokerError) as caught:
            manager.get(TP)
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        manager.close()
        assert (CLEAN_SHUTDOWN in home.names()) == clean


# --- create and delete -------------------------------------------------------------------------------------


def test_a_deleted_topic_is_deleted_at_once_and_its_files_a_little_later(home: Home) -> None:
    manager = home.start()
    home.create(manager)
    home.create(manager, OTHER)
    log = manager.get(TP)
    append(log, records("a"))
    held = log.read(0, 1000, min_one=True).slice
    manager.delete("orders")
    assert TP not in manager
    assert "orders-0" not in home.names()
    assert [n for n in home.names() if n.endswith("-delete")]
    with pytest.raises(BrokerError) as caught:
        append(log, records("b"))
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert held is not None
    assert held.read()
    home.work(manager, 3)
    assert not [n for n in home.names() if n.endswith("-delete")]
    assert OTHER in manager


def test_a_topic_of_the_same_name_begin_again(home: Home) -> None:
    manager = home.start()
    home.create(manager)
    for i in range(20):
        append(manager.get(TP), records(f"{i}" * 50))
    flush(manager.get(TP))
    manager.get(TP).truncate_prefix(7)
    manager.checkpoint()
    manager.delete("orders")
    home.create(manager)
    append(manager.get(TP), records("new"))
    for manager in (home.start(), home.start()):
        log = manager.get(TP)
        assert log.damage is None
        assert [(r.offset, r.value) for r in read_all(log)] == [(0, b"new")]


def test_the_directory_of_a_former_topic_is_not_taken_over(home: Home) -> None:
    """By the metadata the topic was created again, but the process died before the files followed."""
    manager = home.start()
    home.create(manager)
    append(manager.get(TP), records("former"))
    manager.close()
    home.deleted.add(home.topics[TP][0])
    home.topics[TP] = (uuid.UUID(int=99), CONFIG)
    manager = home.start()
    assert values(manager.get(TP)) == []
    assert [name for name in home.names() if name.endswith("-delete")]
    append(manager.get(TP), records("new"))
    assert values(home.start().get(TP)) == [b"new"]


@pytest.mark.parametrize("same_name", [False, True])
def test_records_of_a_topic_that_was_never_deleted_are_kept(home: Home, same_name: bool) -> None:
    """The metadata may be an old copy: what it does not know must not be lost by that."""
    manager = home.start()
    home.create(manager)
    append(manager.get(TP), records("a"))
    manager.close()
    before = (home.root / str(TP) / "00000000000000000000.log").read_bytes()
    del home.topics[TP]
    if same_name:
        home.topics[TP] = (uuid.UUID(int=99), CONFIG)
    manager = home.start()
    assert not same_name or values(manager.get(TP)) == []
    home.work(manager, 3)
    (stray,) = [name for name in home.names() if name.endswith("-stray")]
    assert (home.root / stray / "00000000000000000000.log").read_bytes() == before
    manager.close()
    home.start()
    assert stray in home.names()


def test_what_holds_records_is_told(home: Home) -> None:
    manager = home.start()
    home.create(manager)
    home.create(manager, OTHER)
    assert manager.with_records() == []
    append(manager.get(OTHER), records("a"))
    assert manager.with_records() == [str(OTHER)]


def test_directories_of_deleted_topics_are_removed_and_those_of_others_left_alone(home: Home) -> None:
    manager = home.start()
    home.create(manager)
    home.create(manager, OTHER)
    append(manager.get(TP), records("a"))
    manager.close()
    home.deleted.add(home.topics.pop(TP)[0])
    (home.root / "empty-0").mkdir()
    (home.root / "backup-2024").mkdir()
    (home.root / "backup-2024" / "photo.jpg").write_bytes(b"x")
    (home.root / "gone-1.0123-delete").mkdir()
    (home.root / "gone-1.0123-delete" / "00000000000000000000.log").write_bytes(b"x")
    manager = home.start()
    home.work(manager, 3)
    left = home.names()
    assert {"other-topic-3", "backup-2024"} <= left
    assert not {n for n in left if n.startswith(("orders-0", "empty", "gone"))}


def test_a_deleted_directory_has_a_name_that_fits(home: Home) -> None:
    manager = home.start()
    tp = TopicPartition("n" * 249, 12)
    home.create(manager, tp)
    append(manager.get(tp), records("a"))
    manager.delete(tp.topic)
    (name,) = [n for n in home.names() if n.endswith("-delete")]
    assert len(name) == 255


def test_config_changes_reach_open_and_closed_logs(home: Home) -> None:
    manager = home.start()
    home.create(manager)
    home.create(manager, TopicPartition("orders", 1))
    log = manager.get(TP)
    changed = replace(CONFIG, segment_bytes=900)
    manager.update_config("orders", changed)
    assert log.config is changed
    assert manager.get(TopicPartition("orders", 1)).config is changed


# --- checkpoints -------------------------------------------------------------------------------------------


def test_deleted_records_stay_deleted_once_the_checkpoint_is_written(home: Home) -> None:
    manager = home.start()
    home.create(manager)
    for i in range(10):
        append(manager.get(TP), records(f"{i}"))
    manager.get(TP).truncate_prefix(4)
    manager.begin_checkpoint().run()
    assert read_offsets(str(home.root / LOG_START_OFFSETS)) == {TP: 4}
    assert home.start().get(TP).offsets.log_start_offset == 4


def test_a_checkpoint_keeps_what_it_knows_of_logs_that_are_not_open(home: Home) -> None:
    manager = home.start()
    home.create(manager)
    append(manager.get(TP), records("a", "b"))
    manager.get(TP).truncate_prefix(1)
    manager.close()
    manager = home.start()
    manager.checkpoint()
    assert read_offsets(str(home.root / RECOVERY_POINTS)) == {TP: 2}
    assert read_offsets(str(home.root / LOG_START_OFFSETS)) == {TP: 1}


@pytest.mark.parametrize("spoil", ["missing", "torn", "zeroed"])
@pytest.mark.parametrize("clean", [True, False])
def test_checkpoint_files_may_be_lost(home: Home, spoil: str, clean: bool) -> None:
    manager = home.start()
    home.create(manager)
    for i in range(20):
        append(manager.get(TP), records(f"{i}" * 50))
    manager.close()
    for name in home.names() - {"orders-0"}:
        path = home.root / name
        if name == CLEAN_SHUTDOWN:
            if not clean:
                path.unlink()
        elif spoil == "missing":
            path.unlink()
        else:
            path.write_bytes(path.read_bytes()[:-1] if spoil == "torn" else b"\0" * path.stat().st_size)
    manager = home.start()
    assert len(read_all(manager.get(TP))) == 20
    assert manager.get(TP).damage is None


# --- open files --------------------------------------------------------------------------------------------


def test_no_more_files_are_open_than_allowed(tmp_path: Path) -> None:
    home = Home(tmp_path, max_open_files=8)
    manager = home.start()
    for i in range(30):
        home.create(manager, TopicPartition("t", i))
    for _ in range(3):
        for i in range(30):
            append(manager.get(TopicPartition("t", i)), records("x" * 30))
            assert len(open_files(home.root)) <= 8
    held = [manager.get(TopicPartition("t", i)).read(0, 10**6, min_one=True).slice for i in range(30)]
    assert all(h is not None and len(h.read()) == h.length for h in held)
    assert len(open_files(home.root)) >= 30
    del held
    assert len(open_files(home.root)) <= 8
    manager.close()
    assert open_files(home.root) == []


def test_when_descriptors_run_out_files_are_closed_to_make_space(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = home.start()
    for i in range(10):
        home.create(manager, TopicPartition("t", i))
        append(manager.get(TopicPartition("t", i)), records("x"))
    home.create(manager)
    real = files.open_file
    failures = iter([True])

    def scarce(path: str, flags: int) -> int:
        if next(failures, False):
            raise OSError(24, "Too many open files")
        return real(path, flags)

    monkeypatch.setattr(files, "open_file", scarce)
    assert append(manager.get(TopicPartition("t", 3)), records("y")).base_offset == 1
    manager.get(TopicPartition("t", 3)).release()
    failures = iter([True])
    assert len(read_all(manager.get(TopicPartition("t", 3)))) == 2
    assert len(open_files(home.root)) <= 6


def test_of_a_closed_log_segments_count_and_indexes_do_not(tmp_path: Path) -> None:
    for name, size in (
        ("00000000000000000000.log", 100),
        ("00000000000000000100.log", 23),
        ("x.index", 1000),
    ):
        (tmp_path / name).write_bytes(b"x" * size)
    here, nowhere = TopicPartition("a", 0), TopicPartition("a", 1)
    task = SizeTask([(here, str(tmp_path)), (nowhere, str(tmp_path / "none"))])
    task.run()
    assert task.sizes == {here: 123, nowhere: 0}


def test_the_size_of_a_closed_log_is_kept_unless_its_topic_is_deleted_meanwhile(home: Home) -> None:
    manager = home.start()
    for tp in (TP, OTHER):
        home.create(manager, tp)
        append(manager.get(tp), records("a"))
    size = manager.get(TP).size
    manager.close()
    manager = home.start()
    task = manager.begin_sizes()
    assert task is not None
    manager.delete(OTHER.topic)
    task.run()
    manager.finish_sizes(task)
    assert manager.known(TP) == (0, 1, size)
    assert manager.known(OTHER) is None
    assert manager.begin_sizes() is None
