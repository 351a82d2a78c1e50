"""One segment: finding batches by offset, by size and by time; indexes as Kafka's dump tool checks them."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path

import pytest

from core.errors import BrokerError, ErrorCode
from core.log.files import FilePool
from core.log.segment import ALL, Cut, Segment
from core.records.batch import assign, batches, build_batch
from core.records.header import BatchHeader
from core.records.record import NewRecord

MAX_BYTES = 1 << 20


class Filled:
    """A segment at a base offset with batches of one to three records, their times up and down."""

    def __init__(self, directory: Path, *, base: int = 1000, count: int = 60, interval: int = 300) -> None:
        self.directory, self.base, self.interval = directory, base, interval
        self.segment = self.object()
        self.times: list[int] = []
        chance = random.Random(count)
        offset = base
        for _ in range(count):
            times = [5000 + offset + chance.randrange(-40, 40) for _ in range(chance.randrange(1, 4))]
            records = [NewRecord(value=b"x" * chance.randrange(80), timestamp=t) for t in times]
            self.add(offset, build_batch(records, now_ms=0))
            self.times += times
            offset += len(times)

    def object(self, size: int = 0) -> Segment:
        return Segment(
            FilePool(10), str(self.directory), self.base, interval=self.interval, created_ms=0, size=size
        )

    def reopened(self) -> Segment:
        return self.object(self.segment.size)

    def add(self, offset: int, batch: bytearray) -> None:
        assign(batch, 0, base_offset=offset, leader_epoch=3)
        position = self.segment.size
        self.segment.write(batch, len(batch))
        (header,) = (h for _, h in batches(batch))
        self.segment.note(position, header.last_offset, header.size, header.max_timestamp)

    @property
    def layout(self) -> list[tuple[int, BatchHeader]]:
        return list(batches(Path(self.segment.log.path).read_bytes()))


@pytest.fixture
def filled(tmp_path: Path) -> Filled:
    return Filled(tmp_path)


def entries(segment: Segment) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    return (
        [segment.offsets.entry(i) for i in range(segment.offsets.count)],
        [segment.times.entry(i) for i in range(segment.times.count)],
    )


def test_every_offset_is_found(filled: Filled) -> None:
    for segment in (filled.segment, filled.reopened()):
        for position, header in filled.layout:
            for offset in range(header.base_offset, header.next_offset):
                assert segment.locate(offset) == position
        assert segment.locate(filled.layout[-1][1].next_offset) == segment.size
        assert segment.locate(0) == 0


def test_a_cut_is_the_last_boundary_below_the_limit(filled: Filled) -> None:
    layout = filled.layout
    bounds = [position for position, _ in layout] + [filled.segment.size]
    for first in (0, 1, 17, 40):
        start = layout[first][0]
        for limit in range(start, filled.segment.size + 100, 37):
            cut = filled.segment.cut(start, limit)
            assert cut.position == max(b for b in bounds if b <= max(limit, start))
            if cut.position < filled.segment.size:
                assert cut.next_offset in (-1, dict(layout)[cut.position].base_offset)
    assert filled.segment.cut(0, filled.segment.size) == Cut(filled.segment.size, -1)


def test_every_time_is_found(filled: Filled) -> None:
    for segment in (filled.segment, filled.reopened()):
        for wanted in range(min(filled.times) - 2, max(filled.times) + 3):
            for start in (0, filled.base + 50):
                found = segment.find_time(wanted, start, MAX_BYTES)
                expected = next(
                    (
                        (time, filled.base + i, 3)
                        for i, time in enumerate(filled.times)
                        if time >= wanted and filled.base + i >= start
                    ),
                    None,
                )
                assert found == expected


def test_indexes_are_as_the_dump_tool_wants_them(filled: Filled) -> None:
    """Each offset entry names the last offset of the batch at its position; each time entry the batch that
    holds that timestamp as its largest, in rising order (kafka-dump-log --verify-index-only)."""
    filled.segment.seal()
    by_position = dict(filled.layout)
    by_offset = {header.last_offset: header for header in by_position.values()}
    offsets, times = entries(filled.segment)
    assert len(offsets) > 10
    assert len(times) > 5
    for relative, position in offsets:
        assert by_position[position].last_offset == relative + filled.base
    for time, relative in times:
        assert by_offset[relative + filled.base].max_timestamp == time
    assert times == sorted(set(times))
    assert times[-1][0] == max(filled.times)
    assert (filled.directory / "00000000000000001000.index").stat().st_size == 8 * len(offsets)
    assert (filled.directory / "00000000000000001000.timeindex").stat().st_size == 12 * len(times)


def test_an_entry_comes_after_the_interval_and_not_before(filled: Filled) -> None:
    positions = [0, *(position for _, position in entries(filled.segment)[0])]
    by_position = dict(filled.layout)
    for before, after in pairwise(positions):
        gap = after - before
        last = max(p for p in by_position if p < after)
        assert gap > filled.interval
        assert last - before <= filled.interval or before == 0


@pytest.mark.parametrize("sealed", [True, False])
def test_a_reopened_segment_knows_what_it_knew(filled: Filled, sealed: bool) -> None:
    if sealed:
        filled.segment.seal()
    else:
        filled.segment.flush_indexes()
    again = filled.reopened()
    again.load()
    assert entries(again) == entries(filled.segment)
    for name in ("max_timestamp", "max_timestamp_offset", "since_entry", "first_timestamp"):
        assert getattr(again, name) == getattr(filled.segment, name)


@pytest.mark.parametrize("what", ["index", "timeindex"])
def test_a_segment_with_stale_indexes_finds_what_they_lack(tmp_path: Path, what: str) -> None:
    """The indexes of an earlier moment, as a crash leaves them: the offset index is never ahead."""
    filled = Filled(tmp_path, count=30)
    filled.segment.flush_indexes()
    if what == "timeindex":  # written first, and then the disk was full
        filled.segment.offsets.keep(2)
        filled.segment.offsets.flush()
    offset = filled.layout[-1][1].next_offset
    for i in range(20):
        filled.add(offset + i, build_batch([NewRecord(value=b"y" * 70, timestamp=9000 + i)], now_ms=0))
    expected = entries(filled.segment)[0] if what == "index" else None
    again = filled.reopened()
    again.load()
    assert again.max_timestamp == 9019
    assert again.find_time(9005, 0, MAX_BYTES) == (9005, offset + 5, 3)
    if expected:
        assert entries(again)[0] == expected


def test_a_foreign_index_in_the_middle_is_noticed_and_rebuilt(filled: Filled) -> None:
    filled.segment.flush_indexes()
    path = filled.directory / "00000000000000001000.index"
    data = bytearray(path.read_bytes())
    data[8 * 3 + 4 : 8 * 3 + 8] = (int.from_bytes(data[8 * 3 + 4 : 8 * 3 + 8], "big") + 1).to_bytes(4, "big")
    path.write_bytes(data)
    again = filled.reopened()
    for position, header in filled.layout:
        assert again.locate(header.base_offset) == position
    assert entries(again)[0] == entries(filled.segment)[0]
    assert path.read_bytes() != data


def test_loading_up_to_an_offset_looks_no_further(filled: Filled) -> None:
    filled.segment.flush_indexes()
    for position, header in filled.layout:
        again = filled.reopened()
        reached = again.load_until(header.base_offset)
        if header.base_offset == filled.base:
            assert reached == (0, filled.base)
        else:
            assert reached == (position, header.base_offset)
        assert not again.damaged
        assert again.indexed_end <= header.base_offset
    assert filled.reopened().load_until(ALL) == (filled.segment.size, filled.layout[-1][1].next_offset)


def test_a_walk_stops_at_what_is_no_batch(filled: Filled) -> None:
    position, header = filled.layout[20]
    path = Path(filled.segment.log.path)
    good = path.read_bytes()
    for at, value in ((8, 0x7F), (8, 0xFF), (11, 0x01), (16, 3), (23, 0xFF)):
        data = bytearray(good)
        data[position + at] = value
        path.write_bytes(data)
        with pytest.raises(BrokerError) as caught:
            list(filled.reopened().walk())
        assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
        assert caught.value.details["position"] == position
    assert header.size > 0


def test_batches_after_damage_are_found(filled: Filled) -> None:
    position, header = filled.layout[20]
    path = Path(filled.segment.log.path)
    data = bytearray(path.read_bytes())
    data[position + 9] ^= 0x40
    path.write_bytes(data)
    for segment in (filled.segment, filled.reopened()):
        whole = [*batches(data, 0, position), *batches(data, position + header.size)]
        for at, other in whole:
            assert segment.locate(other.base_offset) == at
        with pytest.raises(BrokerError):
            segment.locate(header.base_offset)


def test_damage_is_logged_once_for_each_place(filled: Filled, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(5):
        filled.segment.corrupt(7, "why")
    for position in range(100):
        filled.segment.corrupt(position, "why")
    assert 2 <= len(caplog.records) <= 10


def test_hints_are_few(filled: Filled) -> None:
    for offset in range(filled.base, filled.base + 100):
        filled.segment.locate(offset)
    assert len(filled.segment._hints) <= 16
