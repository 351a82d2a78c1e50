"""A log against a model, by whatever sequence of calls, crashes and torn tails Hypothesis thinks of."""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from core.errors import BrokerError, ErrorCode
from core.log.retention import apply_retention
from core.records.batch import batches
from core.records.record import NewRecord
from tests.core.log.shelf import Shelf, append, flush, read_all

SIZES = st.lists(st.integers(0, 120), min_size=1, max_size=4)
NOW = 1_700_000_000_000


class LogMachine(RuleBasedStateMachine):
    """The model is a list of values and times by offset, and what is durable."""

    @initialize(interval=st.sampled_from([0, 100, 400]), segment=st.sampled_from([300, 700, 2000]))
    def begin(self, interval: int, segment: int) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="log-machine-"))
        self.shelf = Shelf(self.root, interval=interval, segment_bytes=segment, retention_ms=-1)
        self.log = self.shelf.open()
        # Values and times of all offsets ever written; the start of the log; what an fsync has covered.
        self.written: list[tuple[bytes, int]] = []
        self.batch_starts: list[int] = []
        self.start = 0
        self.flushed = 0
        self.recovery_point = 0
        # Per producer: the next sequence number, and its last batches as (sequence, base offset, count).
        self.producers: dict[int, tuple[int, list[tuple[int, int, int]]]] = {}
        self.generation = 0

    def teardown(self) -> None:
        if hasattr(self, "root"):
            self.log.release()
            shutil.rmtree(self.root)

    # --- writing -------------------------------------------------------------------------------------------

    def _records(self, sizes: list[int], step: int) -> list[NewRecord]:
        first = len(self.written)
        return [
            NewRecord(value=b"%d:" % (first + i) + b"x" * size, timestamp=NOW + (first + i) * step % 97)
            for i, size in enumerate(sizes)
        ]

    def _id(self, producer: int) -> int:
        return self.generation * 10 + producer

    def _wrote(self, new: list[NewRecord]) -> None:
        self.batch_starts.append(len(self.written))
        self.written += [(record.value or b"", record.timestamp or 0) for record in new]

    @rule(sizes=SIZES, step=st.integers(-3, 3), codec=st.sampled_from([0, 0, 1]))
    def append(self, sizes: list[int], step: int, codec: int) -> None:
        new = self._records(sizes, step)
        try:
            result = append(self.log, new, codec=codec)
        except BrokerError as error:
            assert error.code is ErrorCode.RECORD_LIST_TOO_LARGE
            return
        assert (result.base_offset, result.duplicate) == (len(self.written), False)
        self._wrote(new)

    @rule(producer=st.integers(1, 3), sizes=SIZES)
    def append_in_sequence(self, producer: int, sizes: list[int]) -> None:
        sequence, known = self.producers.get(producer, (0, []))
        new = self._records([size // 2 for size in sizes[:2]], 1)
        options = {"producer_id": self._id(producer), "producer_epoch": 0, "base_sequence": sequence}
        result = append(self.log, new, **options)
        assert (result.base_offset, result.duplicate) == (len(self.written), False)
        known = [*known, (sequence, result.base_offset, len(new))][-5:]
        self.producers[producer] = (sequence + len(new), known)
        self._wrote(new)

    @rule(producer=st.integers(1, 3), which=st.integers(0, 4))
    def retry(self, producer: int, which: int) -> None:
        _, known = self.producers.get(producer, (0, []))
        if which < len(known):
            sequence, base, count = known[which]
            new = [NewRecord(value=b"again")] * count
            options = {"producer_id": self._id(producer), "producer_epoch": 0, "base_sequence": sequence}
            result = append(self.log, new, **options)
            assert (result.base_offset, result.last_offset, result.duplicate) == (
                base,
                base + count - 1,
                True,
            )

    @rule(segment=st.sampled_from([300, 700, 2000]))
    def change_segment_size(self, segment: int) -> None:
        self.shelf.config = self.log.config = replace(self.log.config, segment_bytes=segment)

    @rule()
    def flush(self) -> None:
        flush(self.log)
        self.flushed = len(self.written)
        assert self.log.flushed_offset == self.flushed

    @rule()
    def checkpoint(self) -> None:
        self.log.checkpoint()
        self.recovery_point = self.log.flushed_offset

    # --- removing ------------------------------------------------------------------------------------------

    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        offset = int(len(self.written) * share)
        self.start = max(self.start, offset)
        assert self.log.truncate_prefix(offset) == self.start

    @rule(size=st.integers(0, 3000))
    def retain(self, size: int) -> None:
        self.log.config = replace(self.log.config, retention_bytes=size)
        apply_retention(self.log, NOW)
        self.log.config = replace(self.log.config, retention_bytes=-1)
        assert self.start <= self.log.offsets.log_start_offset <= len(self.written)
        self.start = self.log.offsets.log_start_offset

    # --- restarts ------------------------------------------------------------------------------------------

    @rule()
    def restart_cleanly(self) -> None:
        self.log = self.shelf.reopen_cleanly(self.log)
        self.flushed = self.recovery_point = len(self.written)

    @rule()
    def crash(self) -> None:
        self.log.release()
        self.log = self.shelf.open(recovery_point=self.recovery_point, log_start=self.start)

    @rule(spoil=st.lists(st.sampled_from([".index", ".timeindex", ".snapshot", "checkpoint"]), max_size=3))
    def crash_and_lose_files(self, spoil: list[str]) -> None:
        self.log.release()
        for path in self.shelf.directory.iterdir():
            if path.name.endswith(tuple(spoil)):
                path.unlink()
        self.log = self.shelf.open(recovery_point=self.recovery_point, log_start=self.start)
        first = self.log.segments.all[0].base_offset
        if ".snapshot" in spoil and any(
            base < first for _, known in self.producers.values() for _, base, _ in known
        ):
            # Their batches were deleted with their segments, and only a snapshot that may be lost had them still.
            self._begin_producers_again()

    def _begin_producers_again(self) -> None:
        """The producers take new ids: the log may have lost what it knew of the old ones."""
        self.producers.clear()
        self.generation += 1

    @precondition(lambda self: self.flushed < len(self.written))
    @rule(share=st.floats(0, 1))
    def lose_power(self, share: float) -> None:
        """The last segment loses some of what no fsync has covered."""
        self.log.release()
        active = self.log.segments.active
        path = Path(active.log.path)
        if path.exists():
            keep = 0
            for position, header in batches(path.read_bytes()):
                if header.base_offset < self.flushed:
                    keep = position + header.size
            os.truncate(path, keep + int((path.stat().st_size - keep) * share))
        self.log = self.shelf.open(recovery_point=self.recovery_point, log_start=self.start)
        end = self.log.offsets.log_end_offset
        assert max(self.flushed, self.start) <= end <= len(self.written)
        if end > self.start:
            assert end in [*self.batch_starts, len(self.written)] or end == self.start
        del self.written[end:]
        self.written += [(b"", 0)] * (end - len(self.written))
        self.batch_starts = [start for start in self.batch_starts if start < end]
        # The producers believe that the lost batches are there.
        self._begin_producers_again()

    # --- what must hold ------------------------------------------------------------------------------------

    @rule(share=st.floats(0, 1), limit=st.integers(1, 2000))
    def read(self, share: float, limit: int) -> None:
        end = len(self.written)
        offset = self.start + int((end - self.start) * share)
        found = read_all(self.log, offset, limit)
        assert [(r.offset, r.value) for r in found] == [(o, self.written[o][0]) for o in range(offset, end)]

    @rule(time=st.integers(NOW - 2, NOW + 100))
    def find_time(self, time: int) -> None:
        expected = next(
            (
                (self.written[o][1], o)
                for o in range(self.start, len(self.written))
                if self.written[o][1] >= time
            ),
            (-1, -1),
        )
        assert self.log.offset_for_time(time)[:2] == expected

    @invariant()
    def bounds_are_right(self) -> None:
        if hasattr(self, "log"):
            assert self.log.offsets == (self.start, len(self.written), len(self.written), len(self.written))
            assert self.log.damage is None
            assert self.log.size == sum(s.size for s in self.log.segments.all)

    @invariant()
    def the_whole_log_is_the_model(self) -> None:
        if hasattr(self, "log"):
            found = [(r.offset, r.value) for r in read_all(self.log)]
            assert found == [(o, self.written[o][0]) for o in range(self.start, len(self.written))]


TestLogMachine = LogMachine.TestCase
TestLogMachine.settings = settings(
    max_examples=5000 if os.environ.get("SLUICE_LONG_TESTS") == "1" else 150,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
