"""Idempotent producers: what is taken, what is answered again, what is refused, and the snapshot file."""

from __future__ import annotations

import errno
import struct
from pathlib import Path

import crc32c
import pytest

from core.errors import BrokerError, ErrorCode
from core.log.producer_state import INT32_MAX, ProducerStates, RememberedBatch, Snapshots
from core.records.batch import build_batch, read_header
from core.records.header import BatchHeader
from core.records.record import NewRecord
from tests.core.log.disk import Disk


def header(producer_id: int, epoch: int, sequence: int, count: int = 1, *, time: int = 1000) -> BatchHeader:
    return read_header(
        build_batch(
            [NewRecord(value=b"x")] * count,
            now_ms=time,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
        )
    )


def taken(states: ProducerStates, one: BatchHeader, offset: int, now_ms: int = 0) -> None:
    assert states.check(one) is None
    states.update(one, offset, now_ms)


def refused(states: ProducerStates, one: BatchHeader) -> ErrorCode:
    with pytest.raises(BrokerError) as caught:
        states.check(one)
    return caught.value.code


def test_sequences_must_follow_one_another() -> None:
    states = ProducerStates(10)
    taken(states, header(1, 0, 0, 3), 0)
    taken(states, header(1, 0, 3, 2), 10)
    assert refused(states, header(1, 0, 6)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refused(states, header(1, 0, 4)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    taken(states, header(1, 0, 5), 20)


def test_a_producer_that_is_not_known_may_begin_anywhere() -> None:
    states = ProducerStates(10)
    taken(states, header(1, 3, 77), 0)
    taken(states, header(1, 3, 78), 1)


def test_the_last_five_batches_are_recognised_and_no_older_one() -> None:
    states = ProducerStates(10)
    for i in range(8):
        taken(states, header(1, 0, i * 2, 2), i * 10)
    for i in range(3, 8):
        known = states.check(header(1, 0, i * 2, 2))
        assert known is not None
        assert (known.base_offset, known.last_offset, known.base_sequence) == (i * 10, i * 10 + 1, i * 2)
    assert refused(states, header(1, 0, 4, 2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    # Part of a batch, or more than it, is not that batch.
    assert refused(states, header(1, 0, 14, 1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refused(states, header(1, 0, 12, 4)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_new_epoch_begins_at_0_and_ends_the_old_one() -> None:
    states = ProducerStates(10)
    taken(states, header(1, 4, 0), 0)
    assert refused(states, header(1, 5, 1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    taken(states, header(1, 5, 0), 1)
    assert refused(states, header(1, 4, 1)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert refused(states, header(1, 4, 0)) is ErrorCode.INVALID_PRODUCER_EPOCH
    known = states.check(header(1, 5, 0))
    assert known is not None
    assert known.base_offset == 1


def test_after_the_largest_sequence_comes_0() -> None:
    states = ProducerStates(10)
    taken(states, header(1, 0, INT32_MAX - 1, 2), 0)
    taken(states, header(1, 0, 0), 2)
    states = ProducerStates(10)
    over = header(1, 0, INT32_MAX - 1, 4)
    taken(states, over, 0)
    assert over.last_sequence == 1
    known = states.check(over)
    assert known is not None
    assert known.base_sequence == INT32_MAX - 1
    taken(states, header(1, 0, 2), 4)


def test_the_longest_silent_producer_is_forgotten_first() -> None:
    states = ProducerStates(3)
    for i in range(3):
        taken(states, header(i, 0, 0), i)
    taken(states, header(0, 0, 1), 3)
    taken(states, header(9, 0, 0), 4)
    assert [state.producer_id for state in states.active()] == [2, 0, 9]


def test_silent_producers_expire() -> None:
    states = ProducerStates(10)
    for i in range(4):
        taken(states, header(i, 0, 0), i, now_ms=i * 100)
    states.changed = False
    states.expire(0)
    assert not states.changed
    states.expire(200)
    assert (states.changed, [state.producer_id for state in states.active()]) == (True, [2, 3])
    assert states.last_offsets() == {2: 2, 3: 3}


# --- snapshots ---------------------------------------------------------------------------------------------


def test_a_snapshot_is_laid_out_as_kafka_does() -> None:
    states = ProducerStates(10)
    taken(states, header(7, 2, 5, 3, time=1234), 40)
    body = struct.pack(">iqhiqiqiq", 1, 7, 2, 7, 42, 2, 1234, -1, -1)
    assert states.encode() == struct.pack(">hI", 1, crc32c.crc32c(body)) + body


def test_a_snapshot_gives_everything_back() -> None:
    states = ProducerStates(10)
    for i in range(9):
        taken(states, header(i % 2, 0, i // 2), i)
    taken(states, header(1, 1, 0), 9)
    data = states.encode()
    again = ProducerStates(10)
    assert again.decode(data, now_ms=5)
    assert again.encode() == data
    assert list(again.active()) == list(states.active())
    assert again.check(header(0, 0, 1)) == RememberedBatch(1, 2, 0, 1000)
    assert refused(again, header(1, 0, 4)) is ErrorCode.INVALID_PRODUCER_EPOCH
    again.expire(5)
    assert len(again) == 2
    again.expire(6)
    assert len(again) == 0


def test_a_snapshot_of_a_broker_that_keeps_one_batch_is_read() -> None:
    body = struct.pack(">iqhiqiqiqqhiqiqiq", 2, 7, 2, 7, 42, 2, 1234, 3, -1, 8, 0, -1, -1, 0, 99, -1, -1)
    states = ProducerStates(10)
    assert states.decode(struct.pack(">hI", 1, crc32c.crc32c(body)) + body, 0)
    assert [(s.producer_id, s.producer_epoch, s.last_sequence) for s in states.active()] == [
        (7, 2, 7),
        (8, 0, -1),
    ]
    assert states.check(header(7, 2, 8)) is None
    assert states.check(header(8, 0, 5)) is None


def test_a_torn_or_changed_snapshot_is_not_taken() -> None:
    states = ProducerStates(10)
    for i in range(4):
        taken(states, header(i, 0, 0), i)
    data = states.encode()
    other = ProducerStates(10)
    taken(other, header(99, 0, 0), 0)
    before = other.encode()
    for i in range(len(data)):
        assert not other.decode(data[:i], 0)
        changed = bytearray(data)
        changed[i] ^= 1
        assert not other.decode(bytes(changed), 0)
    assert not other.decode(data + b"\0", 0)
    assert not other.decode(b"\0" * len(data), 0)
    assert other.encode() == before


def test_snapshot_files_are_pruned_to_the_newest_two_and_the_starts_of_segments(tmp_path: Path) -> None:
    snapshots = Snapshots(str(tmp_path), [])
    for offset in (0, 10, 20, 30, 40, 50):
        snapshots.take(offset, b"data")
    snapshots.prune({0, 20})
    assert snapshots.offsets == [0, 20, 40, 50]
    assert sorted(p.name for p in tmp_path.iterdir()) == [f"{o:020d}.snapshot" for o in (0, 20, 40, 50)]
    snapshots.truncate_to(40)
    assert snapshots.offsets == [0, 20, 40]
    assert snapshots.read(40) == b"data"
    snapshots.remove(99)
    assert snapshots.read(99) == b""


def test_a_snapshot_that_the_disk_refuses_is_done_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshots = Snapshots(str(tmp_path), [])
    with Disk(monkeypatch).failing(errno.ENOSPC):
        snapshots.take(5, b"data")
    assert snapshots.offsets == []
