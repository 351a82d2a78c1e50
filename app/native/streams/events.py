"""Streams of records: one coroutine for each client, which sends pieces until the client or the broker ends it.

The state of a stream is only its position. It asks the fan-out for the piece at its position, sends it, and is then
at the position after it. If there is none, it waits in the broker. A send waits while the client does not read, and
nothing is collected for it meanwhile: the records are in the log. So a stream costs one piece of memory besides the
socket's own buffers, however slow its client is. If retention deletes records before they are sent, the client gets a
`problem` that names the loss, and the stream continues at the log start offset.

    state       what happens                       what follows
    reading     a piece was sent                   reading; a short piece is followed by a pause
                nothing is left                    `caught_up` if it was not, then waiting
                the client's quota is used up      a delay, with comments, then reading
                the position is no more there      `problem`, then reading after the gap
                topic deleted, the disk fails      `problem`, then the end
    waiting     something was appended             reading
                15 s without anything              a comment, then waiting
    any         the broker drains                  `bye` with a time to come back, then the end
                the client left                    the end
                `limit` or `wait_ms` are reached   the end
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from app.errors import Problem, from_broker
from app.http.request import ClientGoneError, Request, Scope, Write
from app.http.waiting import ClientWatch, check_share, counted
from app.native.streams.cursor import Position
from app.native.streams.fanout import Fanout, Feed, Piece, ReadFaultError
from app.native.streams.forms import StreamForm
from core.config import Config
from core.errors import BrokerError, ErrorCode
from core.facade import Facade
from core.security.acl import Operation, ResourceType
from core.security.guarded import Guarded

# A timer may fire this much before its time; a wait for the rest would end at once, again and again.
_EARLY_SECONDS = 0.001


class StreamCount:
    """How many streams of the process are open."""

    def __init__(self) -> None:
        self.open = 0


class Streams:
    """The listeners of one broker; `count` is that of the process."""

    def __init__(
        self,
        config: Config,
        broker: Callable[[], Facade],
        acting: Callable[[Scope], Guarded],
        fanout: Fanout,
        count: StreamCount,
    ) -> None:
        self.config = config
        self.broker = broker
        self.acting = acting
        self.fanout = fanout
        self.count = count

    def check_limit(self, request: Request) -> None:
        """Raise THROTTLING_QUOTA_EXCEEDED when there are as many streams as there may be, or of this client."""
        check_share(request.scope)
        limit = self.config.http_max_streams
        if self.count.open >= limit:
            raise BrokerError(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                f"{limit} streams are open already; read pages instead, or come back later.",
                limit=limit,
            )

    def retry_ms(self) -> int:
        """Return when a client reconnects: a random time, so that not all of them reconnect at the same moment."""
        base = self.config.stream_retry_ms
        return base + self.broker().clock.randrange(base + 1)


class Listener:
    """One stream. `limit` records end it, and `wait_ms` without a record; None means never."""

    def __init__(
        self,
        streams: Streams,
        request: Request,
        feed: Feed,
        form: StreamForm,
        position: Position,
        *,
        limit: int | None = None,
        wait_ms: int | None = None,
    ) -> None:
        self._streams = streams
        self._broker = streams.broker()
        acting = streams.acting(request.scope)
        self._rights, self._meter = acting.rights, acting.meter
        self._fanout = streams.fanout
        self._config = streams.config
        self._request = request
        self._feed = feed
        self._form = form
        self._position = position
        # What is sent first: that records are missing before the position.
        self.problem: Problem | None = None
        # The last position that the client knows.
        self._told: Position | None = None
        self._behind = True
        self._left = limit
        self._wait_ms = wait_ms
        self._written_at = 0.0
        # When the next piece may be sent, and when the stream ends if no record comes.
        self._due = 0.0
        self._idle_since = 0.0

    async def run(self, write: Write) -> None:
        """Send until the end. Raises ClientGoneError if the client disconnects before."""
        self._streams.count.open += 1
        watch = ClientWatch(self._request, self._broker)
        try:
            with counted(self._request.scope):
                await self._run(write, watch)
        except asyncio.CancelledError:
            # The server's patience with a slow reader is over at the end of a drain.
            if self._broker.ready:
                raise
            raise ClientGoneError from None
        finally:
            watch.close()
            self._streams.count.open -= 1
        if watch.gone:
            raise ClientGoneError

    async def _run(self, write: Write, watch: ClientWatch) -> None:
        self._idle_since = self._written_at = self._now()
        if hello := self._form.hello(self._config.stream_retry_ms):
            await self._write(write, hello)
        if self.problem is not None:
            await self._report(write, self.problem.members())
        while not watch.gone:
            if not self._broker.ready:
                await self._bye(write)
                return
            try:
                goes_on = await self._step(write, watch)
            except ReadFaultError as fault:
                goes_on = await self._skip(write, fault)
            except BrokerError as error:
                await self._report(write, from_broker(error).members())
                return
            if not goes_on:
                return

    async def _step(self, write: Write, watch: ClientWatch) -> bool:
        """Send a piece, or wait for one; False at the end. Raises ReadFaultError and BrokerError."""
        # For each piece: a right may be taken while the stream waits.
        self._rights.require(Operation.READ, ResourceType.TOPIC, self._feed.topic)
        delay = self._meter.read_wait()
        if delay > _EARLY_SECONDS and not self._fanout.caught_up(self._feed, self._position):
            await self._delay(write, watch, delay)
            return True
        piece = await self._next()
        if piece is None:
            return await self._wait(write, watch)
        # Before the write: the client's other streams share the quota, and read meanwhile.
        self._meter.read_bytes(piece.payload)
        await self._send(write, piece)
        return self._left != 0

    # --- reading -------------------------------------------------------------------------------------------

    async def _next(self) -> Piece | None:
        size = self._config.stream_piece_bytes
        room = self._meter.readable_now(size)
        if self._left is None and room == size:
            return await self._fanout.piece(self._feed, self._form, self._position)
        # No other reader needs exactly this number of records, or of bytes.
        if self._fanout.caught_up(self._feed, self._position):
            return None
        most = 2**31 if self._left is None else self._left
        await self._fanout.bring(self._feed, self._position, max_bytes=room)
        taken = self._fanout.take(self._feed, self._position, max_bytes=room, max_records=most)
        if self._left is not None:
            self._left -= taken.records
        return Piece(self._form.records(self._feed, taken), taken.behind, taken.payload)

    async def _delay(self, write: Write, watch: ClientWatch, seconds: float) -> None:
        """Read nothing for some time, because the client is beyond its quota; at most until a comment is due."""
        until_comment = self._written_at + self._config.stream_comment_ms / 1000 - self._now()
        if until_comment <= _EARLY_SECONDS:
            await self._comment(write)
            return
        # No partition: an append does not end this wait, but the client's leaving does, and a drain.
        await self._broker.changes.wait_for(self._feed.topic, (), min(seconds, until_comment), watch)

    async def _send(self, write: Write, piece: Piece) -> None:
        self._position = piece.behind
        size = len(piece.body)
        if size:
            await self._write(write, piece.body)
            self._told = piece.behind
            self._idle_since = self._written_at
            self._due = self._written_at + self._config.stream_interval_ms / 1000
        elif self._now() - self._written_at >= self._config.stream_comment_ms / 1000:
            await self._comment(write)
        if self._fanout.caught_up(self._feed, self._position):
            return
        self._behind = self._behind or size >= self._config.stream_piece_bytes
        # More is there. Full pieces follow each other as fast as the client takes them, others in their rhythm.
        short = 0 < size < self._config.stream_piece_bytes // 2
        await asyncio.sleep(max(0.0, self._due - self._now()) if short else 0)

    async def _wait(self, write: Write, watch: ClientWatch) -> bool:
        """Wait for more; False when the stream is to end because nothing came."""
        if self._behind:
            self._behind = False
            if told := self._form.caught_up(self._feed, self._position):
                await self._write(write, told)
                self._told = self._position
        seconds = self._written_at + self._config.stream_comment_ms / 1000 - self._now()
        if self._wait_ms is not None:
            left = self._idle_since + self._wait_ms / 1000 - self._now()
            if left <= _EARLY_SECONDS:
                return False
            seconds = min(seconds, left)
        feed = self._feed
        # Records that were appended while `caught_up` was sent have not woken this stream.
        if seconds > 0 and self._fanout.caught_up(feed, self._position):
            await self._broker.changes.wait_for(feed.topic, feed.partitions, seconds, watch)
        if watch.gone or not self._broker.ready:
            return True
        now = self._now()
        if self._fanout.caught_up(feed, self._position):
            if now - self._written_at >= self._config.stream_comment_ms / 1000 - _EARLY_SECONDS:
                await self._comment(write)
        elif self._due > now:
            await asyncio.sleep(self._due - now)
        return True

    # --- what is not a record ------------------------------------------------------------------------------

    async def _comment(self, write: Write) -> None:
        moved = self._position is not self._told and self._position != self._told
        await self._write(write, self._form.comment(self._feed, self._position if moved else None))
        self._told = self._position

    async def _skip(self, write: Write, fault: ReadFaultError) -> bool:
        """Send a `problem` for what cannot be read, and continue after it. Return False if that is not possible."""
        further = after_fault(self._position, fault)
        document = fault_problem(self._feed, self._position, fault).members()
        if further is not None:
            self._position = further
            document["next_offset"] = further.offsets[fault.index]
        await self._report(write, document)
        return further is not None

    async def _report(self, write: Write, document: Mapping[str, object]) -> None:
        await self._write(write, self._form.problem(self._feed, self._position, document))
        self._told = self._position

    async def _bye(self, write: Write) -> None:
        retry = self._streams.retry_ms()
        reason = "The server is stopping; connect again with this cursor."
        await self._write(write, self._form.bye(self._feed, self._position, reason, retry))

    async def _write(self, write: Write, piece: bytes) -> None:
        await write(piece)
        self._written_at = self._now()

    def _now(self) -> float:
        return self._broker.clock.monotonic()


def fault_problem(feed: Feed, position: Position, fault: ReadFaultError) -> Problem:
    """Why a partition cannot be read at its position: 410 below the start of the log, 416 above its end."""
    offset = offset_at(position, fault.index)
    problem = from_broker(fault.error, offset=offset)
    problem.extra |= {"partition": feed.number(fault.index), "offset": offset}
    return problem


def offset_at(position: Position, index: int) -> int:
    """The offset of one partition; 0 for one that the topic has got since."""
    return position.offsets[index] if index < len(position.offsets) else 0


def after_fault(position: Position, fault: ReadFaultError) -> Position | None:
    """Return the position after what cannot be read: the log start offset, or the end of a broken batch.

    None when reading on would not help.
    """
    details = fault.error.details
    out_of_range = fault.error.code is ErrorCode.OFFSET_OUT_OF_RANGE
    further = details.get("log_start_offset" if out_of_range else "next_offset")
    if not isinstance(further, int) or further <= offset_at(position, fault.index):
        return None
    offsets = list(position.offsets)
    offsets += [0] * (fault.index + 1 - len(offsets))
    offsets[fault.index] = further
    return Position(tuple(offsets), fault.index)
