"""Reads of single records over reads of batches, for any source of batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol
from uuid import UUID

from core.batches.decoding import Decoder
from core.clock import Clock, TimeSlice
from core.errors import BrokerError
from core.types import LogRead, TopicPartition
from core.vocabulary.records import Fetched, FetchedAll, FetchRead, ReadResult


class Source(Protocol):
    """The part of `facade.Partitions` that reads batches."""

    def fetch_now(
        self, reads: Sequence[FetchRead], *, max_bytes: int, min_one_each: bool = False
    ) -> FetchedAll:
        """See `facade.Partitions.fetch_now`."""
        ...

    async def fetch(
        self,
        reads: Sequence[FetchRead],
        *,
        max_bytes: int,
        min_bytes: int,
        wait_ms: int,
        min_one_each: bool = False,
        first: FetchedAll | None = None,
    ) -> list[Fetched]:
        """See `facade.Partitions.fetch`."""
        ...


class RecordReader:
    """`read` and `read_now` of `facade.Records`. `topic_id` returns the id of a topic."""

    def __init__(
        self, clock: Clock, source: Source, decoder: Decoder, topic_id: Callable[[str], UUID]
    ) -> None:
        self._clock = clock
        self._source = source
        self._decoder = decoder
        self._topic_id = topic_id

    async def read(
        self,
        tp: TopicPartition,
        offset: int,
        *,
        max_bytes: int,
        max_records: int,
        wait_ms: int = 0,
        min_bytes: int = 1,
        first: ReadResult | None = None,
        committed: bool = True,
    ) -> ReadResult:
        """See `facade.Records.read`."""
        nothing = None
        if first is not None and first.next_offset > offset:
            offset = first.next_offset
        elif first is not None:
            nothing = FetchedAll([Fetched(tp, LogRead(None, first.offsets))], 0, False, first.event)
        monotonic = self._clock.monotonic
        until = monotonic() + wait_ms / 1000
        time_slice = TimeSlice(self._clock)
        while True:
            (one,) = await self._source.fetch(
                [FetchRead(tp, offset, max_bytes, committed=committed)],
                max_bytes=max_bytes,
                min_bytes=min_bytes,
                wait_ms=max(round((until - monotonic()) * 1000), 0),
                first=nothing,
            )
            result = self._decoded(one, offset, max_records)
            if result.records or result.next_offset == offset:
                return result
            offset, nothing = result.next_offset, None
            await time_slice.give_way()

    def read_now(
        self, tp: TopicPartition, offset: int, *, max_bytes: int, max_records: int, committed: bool = True
    ) -> ReadResult:
        """See `facade.Records.read_now`."""
        fetched = self._source.fetch_now(
            [FetchRead(tp, offset, max_bytes, committed=committed)], max_bytes=max_bytes
        )
        return self._decoded(fetched.answers[0], offset, max_records, fetched.event)

    def read_pieces(
        self, tp: TopicPartition, offset: int, *, max_bytes: int, max_records: int, committed: bool = True
    ) -> ReadResult:
        """`read_now` over a source that has what is at hand in pieces: read one after the other."""
        before: ReadResult | None = None
        while True:
            fetched = self._source.fetch_now(
                [FetchRead(tp, offset, max_bytes, committed=committed)], max_bytes=max_bytes
            )
            try:
                result = self._decoded(fetched.answers[0], offset, max_records, fetched.event)
            except BrokerError:
                # What was read before is returned, if only how far; the next read begins with the error.
                if before is None:
                    raise
                return before
            max_bytes -= fetched.size
            max_records -= len(result.records)
            end = result.offsets.end(committed=committed)
            at_end = result.next_offset <= offset or result.next_offset >= end
            offset = result.next_offset
            if before is not None:
                result = result._replace(records=before.records + result.records)
            if at_end or max_bytes <= 0 or max_records <= 0:
                return result
            before = result

    def _decoded(self, one: Fetched, offset: int, max_records: int, event: int = -1) -> ReadResult:
        if one.error is not None:
            raise one.error
        assert one.read is not None
        if one.read.slice is None:
            return ReadResult([], one.read.offsets, offset, event)
        return self._decoder.decode(
            one.tp,
            self._topic_id(one.tp.topic),
            one.read.slice.read(),
            offset,
            max_records,
            one.read.offsets,
            aborted=one.read.aborted,
            event=event,
        )
