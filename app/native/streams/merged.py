"""The records of all partitions: as pages, as server-sent events, as NDJSON.

The three forms take the same parameters and give the same cursors; `Accept` chooses. A page is stateless: its
`next_cursor` has all that the next request needs. Partitions are read in turn, so that a busy one starves none;
within each partition the order is that of its offsets, between partitions there is none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary, ref

from app.errors import Problem, field_error, slug_of
from app.formats import Reader
from app.http.parameters import MAX_OFFSET, parse_moment
from app.http.request import (
    Answer,
    ClientGoneError,
    Request,
    Scope,
    Streamed,
    invalid_parameter,
    whole_number,
)
from app.http.waiting import ClientWatch, check_share, counted
from app.native.accept import choose
from app.native.record_schemas import MergedQuery
from app.native.records import read_committed
from app.native.streams.cursor import Cursor, CursorError, Position, read_cursor
from app.native.streams.events import Listener, StreamCount, Streams, after_fault, fault_problem, offset_at
from app.native.streams.fanout import RANGE_RECORDS, Fanout, Feed, ReadFaultError
from app.native.streams.filters import HEADER, read_filter
from app.native.streams.forms import NDJSON, SSE, StreamForm
from core.config import Config
from core.errors import ErrorCode
from core.facade import Facade
from core.security.acl import Operation, ResourceType
from core.security.guarded import Guarded
from core.security.meter import Meter
from core.types import LogOffsets, TopicPartition
from core.vocabulary.topic import TopicInfo, check_partition

JSON = b"application/json"
# Other media types for NDJSON.
OTHER_NAMES = (b"application/ndjson", b"application/jsonl")
FORMS: dict[bytes, StreamForm] = {
    SSE.media_type: SSE,
    NDJSON.media_type: NDJSON,
    **dict.fromkeys(OTHER_NAMES, NDJSON),
}
OFFERED = (JSON, *FORMS)
# The names of header filters are free: the document has them as one parameter.
PARAMETERS = (
    *(name for name in MergedQuery.__struct_encode_fields__ if name != "header_filter"), HEADER + "*",
)  # fmt: skip
# What a page may say, and a stream not; what makes no sense for a stream of events that connects again by itself.
_NOT_IN = {JSON: ("last_event_id",), SSE.media_type: ("limit", "max_bytes", "wait_ms")}
_NOT_IN_LINES = ("max_bytes",)
# A search by time reads the disk. After this many of them, other tasks may run.
_SEARCHES = 8
_NO_CACHE = ((b"cache-control", b"no-store"), (b"vary", b"accept"))
# A proxy that collects answers before it passes them on (nginx does) would hold a stream back without an end.
_STREAM_HEADERS = (*_NO_CACHE, (b"x-accel-buffering", b"no"))


_STANDS = {"cursor": "the cursor stands at", "offsets": "what was asked for is"}


class Gap(NamedTuple):
    """Missing records of a cursor: the problem to send, and the position to continue at."""

    problem: Problem
    behind: Position


class MergedRoutes:
    """The handler. Callers with the same broker share its reads; a gateway may have one for each caller."""

    def __init__(self, config: Config, acting: Callable[[Scope], Guarded]) -> None:
        self._config = config
        self._acting = acting
        self._count = StreamCount()
        self._readers = {name: Reader(name, config.http_max_json_depth) for name in Reader.NAMES}
        self._reads: WeakKeyDictionary[Facade, _MergedReads] = WeakKeyDictionary()

    async def read(self, request: Request, segments: list[str]) -> Answer | Streamed:
        """Read the records of all partitions: by offset within each partition, in turn between them.

        `Accept` chooses one of three forms, which share their parameters and cursors.

        `application/json`: a page. Continue with `next_cursor`. `caught_up: false` on an empty page means that a
        filter has found nothing yet.

        `text/event-stream`: server-sent events for the browser's EventSource, without end. The `id` of each event is
        the cursor after it, so that a reconnect with `Last-Event-ID` misses nothing and repeats nothing. Events:
        `record` (data: the record), `caught_up` (all that was there has been sent), `problem` (a problem document:
        records that are lost to retention or cannot be read; the stream continues after them if it can), `bye` (the
        server stops; `retry` says when to come back). A comment comes every 15 s. A slow reader loses nothing: the
        log is its buffer.

        `application/x-ndjson`: a line for each record, with its `cursor` as one more member. A line without an
        `offset` is about the stream: `{"problem": …}` or `{"bye": …}`, each with a `cursor`. Empty lines keep the
        connection open.

        A cursor below the start of a partition is refused with 410 and a `next_cursor` to continue with. A reconnect
        gets an event instead, because browsers hide errors from their pages.
        """
        acting = self._acting(request.scope)
        broker = acting.unguarded
        reads = self._reads.get(broker)
        if reads is None:
            # The dictionary must not keep its own keys.
            find = ref(broker)
            reads = self._reads[broker] = _MergedReads(
                self._config, lambda: _held(find()), self._acting, self._readers, self._count
            )
        return await reads.read(request, segments)


def _held(broker: Facade | None) -> Facade:
    assert broker is not None
    return broker


class _MergedReads:
    """The merged reads and streams of one broker."""

    def __init__(
        self,
        config: Config,
        broker: Callable[[], Facade],
        acting: Callable[[Scope], Guarded],
        readers: Mapping[str, Reader],
        count: StreamCount,
    ) -> None:
        self._config = config
        self._broker = broker
        self._acting = acting
        # Shared by all clients, so without rights: each client is asked for its right before it gets anything.
        self._fanout = Fanout(config, broker)
        self.streams = Streams(config, broker, acting, self._fanout, count)
        self._readers = readers

    async def read(self, request: Request, segments: list[str]) -> Answer | Streamed:
        """See `MergedRoutes.read`."""
        media_type = choose(request.headers.get(b"accept", b""), OFFERED)
        query = request.query(PARAMETERS)
        for name in _NOT_IN.get(media_type, _NOT_IN_LINES):
            if name in query:
                raise invalid_parameter(name, f"{name} has no meaning in {media_type.decode()}.")
        acting = self._acting(request.scope)
        acting.rights.require(Operation.READ, ResourceType.TOPIC, segments[1])
        await acting.look((segments[1],))
        info = acting.topics.get(segments[1])
        cursor, resumed = self._cursor(request, query, info, media_type != JSON)
        feed = self._feed(query, info, cursor)
        # A page that does not wait has all that was written before it was asked for. What waits gets it in a moment.
        await self._look(feed, query, fresh=media_type == JSON and "wait_ms" not in query)
        position = cursor.position if cursor is not None else await self._beginning(feed, query)
        gap = self._gap(feed, position, "offsets" if "offsets" in query and cursor is None else "cursor")
        if gap is not None:
            # A browser hides an error of a reconnect from its page, so the stream itself reports a gap.
            if not resumed:
                raise gap.problem
            position = gap.behind
        if media_type == JSON:
            return await self._page(request, query, feed, position)
        return self._stream(request, query, feed, position, media_type, gap)

    def _stream(
        self,
        request: Request,
        query: Mapping[str, str],
        feed: Feed,
        position: Position,
        media_type: bytes,
        gap: Gap | None,
    ) -> Streamed:
        limit, wait_ms = None, None
        if "limit" in query:
            limit = whole_number("limit", query["limit"], 1, 2**53)
        if "wait_ms" in query:
            wait_ms = whole_number("wait_ms", query["wait_ms"], 0, self._config.max_wait_ms)
        self.streams.check_limit(request)
        form = FORMS[media_type]
        listener = Listener(self.streams, request, feed, form, position, limit=limit, wait_ms=wait_ms)
        listener.problem = None if gap is None else gap.problem
        return Streamed(200, media_type, _STREAM_HEADERS, listener.run)

    # --- where to begin ------------------------------------------------------------------------------------

    def _cursor(
        self, request: Request, query: Mapping[str, str], info: TopicInfo, stream: bool
    ) -> tuple[Cursor | None, bool]:
        """Return the cursor to continue at, and whether it is a reconnect's.

        The header wins: the browser keeps it current, and repeats the URL unchanged at each reconnect.
        """
        name, text = "cursor", query.get("cursor")
        for other in ("from", "offsets"):
            if text is not None and other in query:
                raise invalid_parameter(other, f"Give a cursor or {other}, not both.")
        if stream:
            if "last_event_id" in query:
                name, text = "last_event_id", query["last_event_id"]
            if given := request.headers.get(b"last-event-id"):
                name, text = "Last-Event-ID", given.decode("latin-1")
        if not text:
            if name == "cursor" and text is not None:
                raise invalid_parameter(
                    name, "The cursor is empty; leave it out to begin at the default position."
                )
            return None, False
        try:
            cursor = read_cursor(text, info.topic_id, self._config.max_partitions_per_topic)
        except CursorError as error:
            raise invalid_parameter(name, f"{name} cannot be taken: {error}.") from None
        if cursor.partitions is None and len(cursor.position.offsets) > info.partitions:
            raise invalid_parameter(name, f"{name} names more partitions than the topic has.")
        return cursor, name != "cursor"

    def _feed(self, query: Mapping[str, str], info: TopicInfo, cursor: Cursor | None) -> Feed:
        encoding = query.get("encoding", "auto")
        if encoding not in self._readers:
            names = ", ".join(Reader.NAMES)
            raise invalid_parameter("encoding", f"encoding must be one of {names}, not {encoding[:40]!r}.")
        partitions = None if cursor is None else cursor.partitions
        if "partitions" in query:
            wanted = read_partitions(query["partitions"], self._config.max_partitions_per_topic)
            if cursor is not None and wanted != partitions:
                raise invalid_parameter(
                    "partitions",
                    "The cursor was made for other partitions; leave `partitions` out to continue.",
                )
            partitions = wanted
        for partition in partitions or ():
            check_partition(info, partition)
        return Feed(
            info,
            partitions,
            self._readers[encoding],
            encoding,
            read_filter(query),
            committed=read_committed(query),
        )

    async def _look(self, feed: Feed, query: Mapping[str, str], *, fresh: bool) -> None:
        """Bring the bounds to hand, and the offsets at the time that `from` names."""
        tps = [TopicPartition(feed.topic, partition) for partition in feed.partitions or ()]
        topics = () if tps else (feed.topic,)
        await self._broker().look(topics, bounds=True, partitions=tps, fresh=fresh)
        text = query.get("from", "")
        if text and not text[0].isalpha():
            moment = parse_moment("from", text)
            await self._broker().look(topics, partitions=tps, moment=moment, committed=feed.committed)

    async def _beginning(self, feed: Feed, query: Mapping[str, str]) -> Position:
        """Where to begin: in the partitions that `offsets` names there, in the others at `from`."""
        position = await self._from(feed, query)
        if "offsets" not in query:
            return position
        starts = list(position.offsets)
        index_of = {feed.number(index): index for index in range(len(starts))}
        wanted = read_offsets(query["offsets"], self._config.max_partitions_per_topic)
        for partition, offset in wanted.items():
            if partition not in index_of:
                # Refuses one that is not there; else it was left out of `partitions`.
                check_partition(self._fanout.info(feed), partition)
                raise invalid_parameter("offsets", f"Partition {partition} is not among `partitions`.")
            starts[index_of[partition]] = offset
        return Position(tuple(starts))

    async def _from(self, feed: Feed, query: Mapping[str, str]) -> Position:
        """The position that `from` means; the earliest when it is not there."""
        text = query.get("from", "earliest")
        broker = self._broker()
        bounds = self._bounds(feed)
        if text == "earliest":
            return Position(tuple([one.log_start_offset for one in bounds]))
        ends = [one.end(committed=feed.committed) for one in bounds]
        if text == "latest":
            return Position(tuple(ends))
        if text[:1].isalpha():
            raise invalid_parameter("from", f"from must be earliest, latest or a time, not {text[:40]!r}.")
        moment = parse_moment("from", text)
        offsets = []
        for index, end in enumerate(ends):
            if index % _SEARCHES == _SEARCHES - 1:
                await asyncio.sleep(0)
            found = broker.partitions.offset_for_time(
                TopicPartition(feed.topic, feed.number(index)), moment, committed=feed.committed
            ).offset
            offsets.append(found if found >= 0 else end)
        return Position(tuple(offsets))

    def _bounds(self, feed: Feed) -> list[LogOffsets]:
        info = self._fanout.info(feed)
        partitions = range(info.partitions) if feed.partitions is None else feed.partitions
        return self._broker().partitions.bounds(feed.topic, partitions)

    def _gap(self, feed: Feed, position: Position, parameter: str) -> Gap | None:
        """What is wrong when partitions do not have what a position asks for: 410 below, 416 above."""
        bounds = self._bounds(feed)
        outside = [
            (index, offset_at(position, index), start, end)
            for index, (start, end, _, _) in enumerate(bounds)
            if not start <= offset_at(position, index) <= end
        ]
        if not outside:
            return None
        corrected = list(position.offsets) + [0] * (len(bounds) - len(position.offsets))
        for index, offset, start, end in outside:
            corrected[index] = start if offset < start else end
        behind = Position(tuple(corrected))
        gone = any(offset < start for _, offset, start, _ in outside)
        first = outside[0]
        code = ErrorCode.OFFSET_OUT_OF_RANGE
        where: list[dict[str, Any]] = [
            {
                "partition": feed.number(index),
                "offset": offset,
                "log_start_offset": start,
                "high_watermark": end,
            }
            for index, offset, start, end in outside[:100]
        ]
        problem = Problem(
            slug_of(code),
            f"Partition {feed.number(first[0])} has offsets from {first[2]} up to {first[3]}; {_STANDS[parameter]} "
            f"{first[1]}. Continue with the cursor in this document; the records between are "
            + ("no longer there." if gone else "not there."),
            status=410 if gone else 416,
            code=code,
            errors=[
                field_error("This partition does not have that offset.", parameter=parameter, **w)
                for w in where
            ],
            extra={**where[0], "next_cursor": feed.writer.text(behind).decode()},
        )
        return Gap(problem, behind)

    # --- pages ---------------------------------------------------------------------------------------------

    async def _page(
        self, request: Request, query: Mapping[str, str], feed: Feed, position: Position
    ) -> Answer:
        config = self._config
        limit, max_bytes, wait_ms = config.http_default_limit, config.http_default_read_bytes, 0
        if "limit" in query:
            limit = whole_number("limit", query["limit"], 1, config.http_max_limit)
        if "max_bytes" in query:
            max_bytes = whole_number("max_bytes", query["max_bytes"], 1, config.http_max_read_bytes)
        if "wait_ms" in query:
            wait_ms = whole_number("wait_ms", query["wait_ms"], 0, config.max_wait_ms)
        meter = self._acting(request.scope).meter
        max_bytes = meter.readable(max_bytes)
        texts, position = await self._collect(meter, feed, position, limit, max_bytes)
        if not texts and wait_ms and self._fanout.caught_up(feed, position):
            texts, position = await self._await_some(request, feed, position, limit, max_bytes, wait_ms)
        body = b'{"records":[%b],"next_cursor":"%b","caught_up":%b}' % (
            b",".join(texts),
            feed.writer.text(position),
            b"true" if self._fanout.caught_up(feed, position) else b"false",
        )
        return Answer(200, body, JSON, _NO_CACHE)

    async def _collect(
        self, meter: Meter, feed: Feed, position: Position, limit: int, max_bytes: int
    ) -> tuple[list[bytes], Position]:
        """Return the existing records. Read in small steps, so that other requests are served between them."""
        texts: list[bytes] = []
        looked, left = 0, max_bytes
        await self._fanout.bring(feed, position, max_bytes=max_bytes)
        while len(texts) < limit and left > 0 and looked < self._config.http_max_scan:
            try:
                taken = self._fanout.take(
                    feed,
                    position,
                    max_bytes=left,
                    max_records=limit - len(texts),
                    max_scan=RANGE_RECORDS,
                    one_at_least=not texts,
                )
            except ReadFaultError as fault:
                if texts:
                    break
                raise _refusal(feed, position, fault) from None
            for part in taken.parts:
                texts += part.found.texts[: part.used]
                left -= part.found.size
            meter.read_bytes(taken.payload)
            looked += RANGE_RECORDS
            if taken.behind == position or self._fanout.caught_up(feed, taken.behind):
                position = taken.behind
                break
            position = taken.behind
            if len(texts) < limit and left > 0:
                await asyncio.sleep(0)
                await self._fanout.bring(feed, position, max_bytes=left)
        return texts, position

    async def _await_some(
        self, request: Request, feed: Feed, position: Position, limit: int, max_bytes: int, wait_ms: int
    ) -> tuple[list[bytes], Position]:
        """A long poll: the first records that come, or none at the deadline. Raises ClientGoneError."""
        broker = self._broker()
        deadline = broker.clock.monotonic() + wait_ms / 1000
        check_share(request.scope)
        watch = ClientWatch(request, broker)
        texts: list[bytes] = []
        try:
            with counted(request.scope):
                while not texts and (left := deadline - broker.clock.monotonic()) > 0:
                    if self._fanout.caught_up(feed, position):
                        woken = await broker.changes.wait_for(feed.topic, feed.partitions, left, watch)
                        if watch.gone:
                            raise ClientGoneError
                        if not woken:
                            break
                    acting = self._acting(request.scope)
                    acting.rights.require(Operation.READ, ResourceType.TOPIC, feed.topic)
                    texts, position = await self._collect(acting.meter, feed, position, limit, max_bytes)
        finally:
            watch.close()
        return texts, position


def read_offsets(text: str, limit: int) -> dict[int, int]:
    """The offsets in `0:17,2:4` by partition. Raises Problem."""
    pairs = text.split(",")
    if len(pairs) > limit:
        raise invalid_parameter("offsets", f"A topic has at most {limit} partitions; these are more.")
    found: dict[int, int] = {}
    for pair in pairs:
        partition, colon, offset = pair.partition(":")
        if not colon:
            raise invalid_parameter("offsets", f"offsets are like 0:17,2:4; {pair[:40]!r} has no colon.")
        number = whole_number("offsets", partition, 0, 2**31 - 1)
        if number in found:
            raise invalid_parameter("offsets", f"Partition {number} is given more than once.")
        found[number] = whole_number("offsets", offset, 0, MAX_OFFSET)
    return found


def read_partitions(text: str, limit: int) -> tuple[int, ...]:
    """The partitions in `0,2,5-7`, each once, in order. Raises Problem."""
    found: set[int] = set()
    for part in text.split(","):
        low, dash, high = part.partition("-")
        first = whole_number("partitions", low, 0, 2**31 - 1)
        last = whole_number("partitions", high, first, 2**31 - 1) if dash else first
        if last - first >= limit:
            raise invalid_parameter(
                "partitions", f"A topic has at most {limit} partitions; {part!r} is more."
            )
        found.update(range(first, last + 1))
        if len(found) > limit:
            raise invalid_parameter("partitions", f"A topic has at most {limit} partitions; these are more.")
    return tuple(sorted(found))


def _refusal(feed: Feed, position: Position, fault: ReadFaultError) -> Problem:
    problem = fault_problem(feed, position, fault)
    further = after_fault(position, fault)
    if further is not None:
        problem.extra["next_cursor"] = feed.writer.text(further).decode()
    return problem
