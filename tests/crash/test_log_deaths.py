"""The log under a process that dies, a machine that loses power and a disk that fills up, at each effect (R5, R6).

One life of a data directory touches everything that changes files: create, append, roll, flush, checkpoint,
delete records, compaction, retention, delete and create again, clean stop. It is lived again and again, ending
at another instruction each time; then the broker starts again and every promise made before is checked.
"""

from __future__ import annotations

import errno
import itertools
import os
import random
import shutil
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from core.clock import ManualClock
from core.config import Config
from core.errors import BrokerError, ErrorCode
from core.log.manager import LogManager
from core.records.batch import build_batch, read_header
from core.records.record import NewRecord
from core.topic_config import TopicConfig
from core.types import TopicPartition
from tests.core.log.disk import Died, Disk
from tests.core.log.shelf import flush, read_all

BIG = os.environ.get("SLUICE_LONG_TESTS") == "1"
PLAIN = TopicPartition("plain", 0)
COMPACT = TopicPartition("compact", 1)
CONFIGS = {
    "plain": TopicConfig(segment_bytes=500, retention_bytes=1500, retention_ms=-1, index_interval_bytes=150),
    "compact": TopicConfig(
        segment_bytes=500, cleanup_policy=frozenset({"compact"}), index_interval_bytes=150
    ),
}


@dataclass
class Promises:
    """What one partition was told, and what it must keep."""

    # Batches whose append was answered: base offset → (sequence, values).
    answered: dict[int, tuple[int, list[bytes]]] = field(default_factory=dict)
    # The batch that was under way: it may be there or not, but once.
    pending: tuple[int, list[bytes]] | None = None
    next_sequence: int = 0
    # Below this everything is on the disk.
    flushed: int = 0
    # Records below this were deleted, for good; below `maybe_start` they may be.
    start: int = 0
    maybe_start: int = 0
    # The producer begins again after a power loss, which took batches that it thinks are there.
    epoch: int = 0


class Life:
    """One broker process after another on one data directory, and its metadata, which never fails."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.clock = ManualClock()
        self.settings = Config(compaction_step_bytes=400, retention_check_interval_ms=5000)
        self.topics: dict[TopicPartition, uuid.UUID] = {}
        self.deleted: set[uuid.UUID] = set()
        self.promises: dict[TopicPartition, Promises] = {}
        self.manager: LogManager
        self.ids = itertools.count(1)

    def start(self) -> None:
        self.manager = LogManager(self.root, self.settings, self.clock)
        entries = ((tp, topic_id, CONFIGS[tp.topic]) for tp, topic_id in self.topics.items())
        self.manager.load(entries, self.deleted)

    def create(self, tp: TopicPartition) -> None:
        self.topics[tp] = uuid.UUID(int=next(self.ids))
        self.promises[tp] = Promises()
        self.manager.create(tp, self.topics[tp], CONFIGS[tp.topic])

    def append(self, tp: TopicPartition, count: int = 2) -> None:
        promise = self.promises[tp]
        promise.pending = promise.pending or self._batch(promise, count)
        sequence, texts = promise.pending
        new = [NewRecord(key=b"k%d" % (sequence % 3), value=text) for text in texts]
        batch = build_batch(
            new,
            now_ms=self.clock.wall_ms(),
            producer_id=5,
            producer_epoch=promise.epoch,
            base_sequence=sequence,
        )
        result = self.manager.get(tp).append(batch, [read_header(batch)], leader_epoch=0)
        promise.answered[result.base_offset] = (sequence, texts)
        promise.next_sequence = sequence + len(texts)
        promise.pending = None

    def _batch(self, promise: Promises, count: int) -> tuple[int, list[bytes]]:
        first = promise.next_sequence
        return first, [b"%d " % (first + i) + b"x" * ((first + i) * 13 % 50) for i in range(count)]

    def flush(self, tp: TopicPartition) -> None:
        log = self.manager.get(tp)
        flush(log)
        self.promises[tp].flushed = log.flushed_offset

    def delete_records(self, tp: TopicPartition, offset: int) -> None:
        self.promises[tp].maybe_start = offset
        self.manager.get(tp).truncate_prefix(offset)
        self.manager.begin_checkpoint().run()
        self.promises[tp].start = offset

    def delete(self, tp: TopicPartition) -> None:
        self.deleted.add(self.topics.pop(tp))
        del self.promises[tp]
        self.manager.delete(tp.topic)

    def work(self, seconds: int) -> None:
        for _ in range(seconds):
            self.clock.advance(1)
            for _ in range(200):
                chore = self.manager.background_step()
                if chore is not None:
                    error: OSError | None = None
                    try:
                        chore.run()
                    except OSError as failure:
                        error = failure
                    self.manager.finish_chore(chore, error)
                if not self.manager.background_pending:
                    break

    def live(self, tried: Callable[[Callable[[], None]], None] = lambda step: step()) -> None:
        """All of it, each step through `tried`."""
        steps: list[Callable[[], None]] = [lambda: self.create(PLAIN), lambda: self.create(COMPACT)]
        for i in range(14):
            steps += [lambda: self.append(PLAIN), lambda: self.append(COMPACT, 1)]
            if i % 4 == 1:
                steps.append(lambda: self.flush(PLAIN))
            if i == 6:
                steps += [
                    lambda: self.manager.begin_checkpoint().run(),
                    lambda: self.delete_records(PLAIN, 5),
                ]
        steps += [lambda: self.flush(COMPACT), lambda: self.work(12), lambda: self.append(COMPACT)]
        steps += [lambda: self.flush(PLAIN), lambda: self.work(7)]
        steps += [lambda: self.delete(PLAIN), lambda: self.create(PLAIN), lambda: self.append(PLAIN)]
        steps += [lambda: self.work(2), lambda: self.manager.checkpoint(), lambda: self.append(PLAIN)]
        for step in steps:
            tried(step)

    # --- looking after the promises ------------------------------------------------------------------------

    def check(self, *, power_lost: bool = False) -> None:
        self.start()
        for tp in self.topics:
            self._check_log(tp, power_lost)
        before = {tp: read_all(self.manager.get(tp)) for tp in self.topics}
        for _ in range(2):  # a second recovery changes nothing, and appends continue
            self.start()
            assert {tp: read_all(self.manager.get(tp)) for tp in self.topics} == before
        for tp in self.topics:
            if power_lost:
                self.promises[tp] = Promises(epoch=1)
            else:
                self._retry(tp)
            self.append(tp)
        self.manager.close()
        self._check_no_leaks()

    def _check_log(self, tp: TopicPartition, power_lost: bool) -> None:
        promise, log = self.promises[tp], self.manager.get(tp)
        assert log.damage is None
        found = {record.offset: record.value for record in read_all(log)}
        start, _, end, _ = log.offsets
        assert list(found) == sorted(found)
        if tp is PLAIN:
            assert list(found) == list(range(start, end))
        assert start >= promise.start
        bound = (
            promise.flushed
            if power_lost
            else max([0, *(b + len(v) for b, (_, v) in promise.answered.items())])
        )
        assert end >= bound
        superseded = tp is COMPACT
        segments = [segment.base_offset for segment in log.segments.all]
        for base, (_, texts) in promise.answered.items():
            for i, text in enumerate(texts):
                offset = base + i
                if offset >= bound:
                    continue
                if offset in found:
                    assert found[offset] == text
                else:
                    assert superseded or offset < max(promise.maybe_start, segments[0])
        if superseded:
            newest = {}
            for base, (sequence, texts) in sorted(promise.answered.items()):
                newest[sequence % 3] = base + len(texts) - 1
            assert all(offset in found for offset in newest.values() if offset < bound)

    def _retry(self, tp: TopicPartition) -> None:
        """Repeat what was not answered, and the last that was: neither becomes a duplicate."""
        promise, log = self.promises[tp], self.manager.get(tp)
        if promise.pending:
            self.append(tp)
        if promise.answered:
            base, (sequence, texts) = max(promise.answered.items())
            new = [NewRecord(key=b"k", value=text) for text in texts]
            batch = build_batch(new, now_ms=1, producer_id=5, producer_epoch=0, base_sequence=sequence)
            result = log.append(batch, [read_header(batch)], leader_epoch=0)
            assert (result.base_offset, result.duplicate) == (base, True)

    def _check_no_leaks(self) -> None:
        self.start()
        self.work(8)
        self.manager.close()
        expected = {str(tp) for tp in self.topics}
        assert {path.name for path in self.root.iterdir() if path.is_dir()} == expected
        for tp in self.topics:
            names = os.listdir(self.root / str(tp))
            logs = {name[:20] for name in names if name.endswith(".log")}
            for name in names:
                assert (
                    name.endswith((".log", ".index", ".timeindex", ".snapshot"))
                    or "." not in name
                    or (name == "partition.metadata")
                ), name
                if name.endswith(("index",)):
                    assert name[:20] in logs, name
            assert sum(name.endswith(".snapshot") for name in names) <= len(logs) + 2


def effects_of_a_life(tmp_path: Path, disk: Disk) -> int:
    life = Life(tmp_path / "counted")
    disk.fail("kill", at=10**9)
    life.start()
    life.live()
    life.manager.close()
    count = len(disk.calls)
    disk.heal()
    shutil.rmtree(life.root)
    return count


@pytest.mark.parametrize("how", ["kill", "tear", "power"])
def test_the_process_may_die_at_each_effect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    disk = Disk(monkeypatch)
    count = effects_of_a_life(tmp_path, disk)
    assert count > 200
    chance = random.Random(count)
    offset = chance.randrange(3)
    for at in range(count) if BIG else range(offset, count, 3):
        life = Life(tmp_path / f"life{at}")
        disk.synced.clear()
        disk.fail("tear" if how == "tear" else "kill", at=at)
        with pytest.raises(Died):
            life.start()
            life.live()
            life.manager.close()
            raise AssertionError("the disk should have died")
        disk.heal()
        if how == "power":
            disk.lose_power(life.root, chance)
        try:
            life.check(power_lost=how == "power")
        except BaseException as error:
            error.add_note(f"died at effect {at}, {disk.calls[-1:]}")
            raise
        shutil.rmtree(life.root)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_the_disk_may_refuse_each_write_and_recover(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """From the n-th write on the disk is full; reads continue; with space again all continues, no restart."""
    disk = Disk(monkeypatch)
    kinds = ("write", "pwrite", "open_file", "make_directory")
    life = Life(tmp_path / "counted")
    disk.fail("kill", *kinds, at=10**9)
    life.start()
    life.live()
    count = len(disk.calls)
    disk.heal()
    step = 1 if BIG else 4
    for at in range(0, count, step):
        life = Life(tmp_path / f"life{at}")
        life.start()
        disk.fail(code, *kinds, at=at)

        def tried(step: Callable[[], None], life: Life = life) -> None:
            for attempt in range(2):
                try:
                    step()
                except (BrokerError, OSError) as error:
                    if isinstance(error, BrokerError):
                        assert error.code is ErrorCode.KAFKA_STORAGE_ERROR
                    for tp in life.topics:
                        if tp in life.manager:
                            read_all(life.manager.get(tp))
                    assert attempt == 0, "there is space again"
                    disk.heal()
                else:
                    return

        life.live(tried)
        disk.heal()
        assert all(life.manager.get(tp).failure is None for tp in life.topics)
        life.check()
        shutil.rmtree(life.root)


def test_a_clean_stop_on_a_full_disk_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, config in list(CONFIGS.items()):
        monkeypatch.setitem(CONFIGS, name, replace(config, index_interval_bytes=50))
    life = Life(tmp_path / "life")
    life.start()
    life.live()
    with Disk(monkeypatch).failing(errno.ENOSPC, "write", "pwrite", "open_file"):
        life.manager.close()
    life.check()
