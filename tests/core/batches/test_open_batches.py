"""Batches that are read in several steps."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.batches import open_batches as opened
from core.batches.open_batches import MANY_RECORDS, OpenBatches
from core.errors import BrokerError, ErrorCode
from core.records.batch import build_batch, read_header, read_records
from core.records.header import BatchHeader
from core.records.record import NewRecord, Record
from tests.core.records.samples import CODECS, simple_records

MIB = 1 << 20
COUNT = MANY_RECORDS * 2


def a_batch(count: int = COUNT, codec: int = 0, **more: int) -> tuple[bytes, BatchHeader]:
    data = bytes(build_batch(simple_records(count, 20), now_ms=0, codec=codec, **more))
    return data, read_header(data)


def walk(batches: OpenBatches, data: bytes, header: BatchHeader, steps: list[int]) -> list[Record]:
    """Read as `RecordVerbs.read_now` does: one record more than wanted says where the next go begins."""
    got: list[Record] = []
    offset = header.base_offset
    for step in [*steps, COUNT]:
        records = batches.read("log", data, 0, header, offset, step + 1)
        got += records[:step]
        if len(records) <= step:
            break
        offset = records[step].offset
    return got


@pytest.mark.parametrize("codec", CODECS)
@settings(deadline=None)  # the first call loads the codec
@given(steps=st.lists(st.integers(1, COUNT), max_size=8))
def test_several_steps_give_what_one_gives(codec: int, steps: list[int]) -> None:
    data, header = a_batch(codec=codec)
    whole = read_records(data, 0, header, max_bytes=MIB)
    assert walk(OpenBatches(MIB, MIB), data, header, steps) == whole


def test_a_batch_is_opened_once_for_one_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    opens = []
    real = opened.record_bytes
    monkeypatch.setattr(opened, "record_bytes", lambda *a, **k: opens.append(1) or real(*a, **k))
    data, header = a_batch(codec=3)
    batches = OpenBatches(MIB, MIB)
    assert len(walk(batches, data, header, [100] * 10)) == COUNT
    assert (len(opens), batches.size) == (1, 0)


def test_readers_side_by_side_do_not_take_from_each_other() -> None:
    data, header = a_batch()
    batches = OpenBatches(MIB, MIB)
    both = [batches.read("log", data, 0, header, 0, 11) for _ in range(2)]
    again = [batches.read("log", data, 0, header, 10, 11) for _ in range(2)]
    assert both[0] == both[1] and again[0] == again[1]
    assert [record.offset for record in again[0]] == list(range(10, 21))


def test_batches_of_two_logs_are_not_taken_for_each_other() -> None:
    one, header = a_batch()
    batches = OpenBatches(MIB, MIB)
    batches.read("one", one, 0, header, 0, 11)
    other = bytes(build_batch([NewRecord(value=b"other")] * COUNT, now_ms=0))
    records = batches.read("two", other, 0, read_header(other), 10, 2)
    assert records[0].value == b"other"


def test_what_is_kept_stays_under_its_limit() -> None:
    data, header = a_batch()
    batches = OpenBatches(MIB, 5 * len(data))
    for log in range(20):
        batches.read(log, data, 0, header, 0, 11)
        assert 0 < batches.size <= 5 * len(data)
    # The newest are those that are still there.
    assert batches.read(19, data, 0, header, 10, 1)[0].offset == 10


@pytest.mark.parametrize(("count", "limit"), [(MANY_RECORDS - 1, MIB), (COUNT, 1_000)])
def test_small_batches_and_those_beyond_the_limit_are_not_kept(count: int, limit: int) -> None:
    data, header = a_batch(count)
    batches = OpenBatches(MIB, limit)
    assert len(batches.read("log", data, 0, header, 0, 11)) == 11
    assert batches.size == 0


def test_a_batch_that_the_disk_has_changed_or_that_is_a_bomb_is_refused() -> None:
    data, header = a_batch()
    batches = OpenBatches(MIB, MIB)
    broken = data[:-1] + bytes([data[-1] ^ 1])
    with pytest.raises(BrokerError) as refused:
        batches.read("log", broken, 0, header, 0, 10)
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
    bomb = bytes(build_batch([NewRecord(value=b"\0" * 2 * MIB)], now_ms=0, codec=4))
    with pytest.raises(BrokerError):
        batches.read("log", bomb, 0, read_header(bomb), 0, 10)
