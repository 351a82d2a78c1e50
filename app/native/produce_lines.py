"""POST of NDJSON with `Accept: application/x-ndjson`: a line in, a line out, for as long as the client likes.

Each line is a record, and gets a line in the answer, in the same order: its offset, or the reason why it was refused.
A bad line does not affect the others. The complete lines of one piece of the body are written together, and their
answers are sent before more is read. So a client that does not read its answers cannot send without an end: the body
is not read any more, and its send blocks. Only one piece and one unfinished line are held in memory.

The last line of the answer may have no `partition` and concern the stream: `{"problem": …}` if it cannot continue,
`{"bye": …}` if the server stops. Lines without an answer were not written.

The HTTP server hands out body and answer of one request independently, so the exchange is full duplex. Starlette's
StreamingResponse would consume the messages of the body.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from app.errors import Problem, from_broker
from app.http.request import ClientGoneError, Request, Scope, Streamed, Write, invalid_parameter
from app.http.waiting import check_share, counted
from app.native.accept import choose
from app.native.produce_body import ProduceBody
from app.native.record_json import written_record
from app.native.record_schemas import RecordError, RecordWritten
from core.config import Config
from core.errors import BrokerError, ErrorCode
from core.facade import Facade
from core.records.record import NewRecord

JSON = b"application/json"
LINES = (b"application/x-ndjson", b"application/ndjson", b"application/jsonl")
# Records that are written at once: at 3 µs a record, under a millisecond of the event loop.
GROUP = 250
_encode = msgspec.json.Encoder(enc_hook=str).encode


def wants_lines(request: Request) -> bytes | None:
    """The media type for an answer line by line, if that is what is accepted. Raises Problem (406)."""
    accept = request.headers.get(b"accept", b"")
    if not any(name in accept for name in LINES):
        return None
    chosen = choose(accept, (JSON, *LINES))
    return None if chosen == JSON else chosen


class ProduceLines:
    """Streams of records that are written."""

    def __init__(self, config: Config, acting: Callable[[Scope], Facade], body: ProduceBody) -> None:
        self._config = config
        self._acting = acting
        self._body = body
        self.open = 0

    async def answer(self, request: Request, topic: str, acks: int, media_type: bytes) -> Streamed:
        """The answer that reads the body. Raises Problem or BrokerError when the stream cannot begin."""
        request.check_plain()
        if b"idempotency-key" in request.headers:
            raise invalid_parameter(
                "Idempotency-Key",
                "An Idempotency-Key is bound to one body; a stream of lines has no end to bind.",
            )
        check_share(request.scope)
        limit = self._config.http_max_streams
        if self.open >= limit:
            raise BrokerError(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED, f"{limit} streams are open already.", limit=limit
            )
        await self.acting(request).topics.get_or_create(topic)
        stream = _Lines(self, request, topic, acks)
        if b"expect" in request.headers:
            # Once the answer has begun, it is too late for "100 Continue"; reading sends it.
            await stream.read_first()
        # If the stream ends early, the rest of the body cannot be distinguished from a next request.
        headers = ((b"cache-control", b"no-store"), (b"x-accel-buffering", b"no"), (b"connection", b"close"))
        return Streamed(200, media_type, headers, stream.run)

    def written(self, lines: Sequence[bytes], first: int) -> tuple[list[NewRecord | RecordWritten], int]:
        """Each line that is not empty as its record, or as the answer that refuses it; and the next number."""
        items: list[NewRecord | RecordWritten] = []
        for line in lines:
            if not line or line.isspace():
                continue
            try:
                items.append(self._body.from_line(line, first))
            except Problem as refused:
                items.append(_refused(refused))
            first += 1
        return items, first

    @property
    def config(self) -> Config:
        """The settings."""
        return self._config

    def acting(self, request: Request) -> Facade:
        """The broker as the client of the request may use it."""
        return self._acting(request.scope)


class _Lines:
    """One such stream."""

    def __init__(self, owner: ProduceLines, request: Request, topic: str, acks: int) -> None:
        self._owner = owner
        self._broker = owner.acting(request)
        self._config = owner.config
        self._request = request
        self._topic = topic
        self._acks = acks
        # The beginning of a line that is not complete, in pieces.
        self._rest: list[bytes] = []
        self._count = 0
        self._receiving: asyncio.Future[Any] | None = None

    async def read_first(self) -> None:
        """Wait for the first piece of the body. Raises Problem if it does not arrive in time."""
        self._receiving = asyncio.ensure_future(self._request.receive())
        done, _ = await asyncio.wait([self._receiving], timeout=self._config.frame_timeout_ms / 1000)
        if not done:
            self._receiving.cancel()
            raise Problem(
                "request-timeout",
                "No data of the body was received in time.",
                headers={"connection": "close"},
            )

    async def run(self, write: Write) -> None:
        """Read, write and answer until the body ends. Raises ClientGoneError."""
        self._owner.open += 1
        try:
            with counted(self._request.scope):
                while (piece := await self._receive()) is not None:
                    await self._take(write, *piece)
                    if not piece[1]:
                        return
            retry = self._config.stream_retry_ms
            bye = {
                "reason": "The server is stopping; what was not answered was not written.",
                "retry_ms": retry,
            }
            await write(_encode({"bye": bye}) + b"\n")
        except (Problem, BrokerError) as error:
            problem = error if isinstance(error, Problem) else from_broker(error)
            await write(_encode({"problem": problem.members()}) + b"\n")
        finally:
            self._owner.open -= 1
            if self._receiving is not None:
                self._receiving.cancel()

    async def _receive(self) -> tuple[bytes, bool] | None:
        """The next piece of the body, and whether more follows; None when the broker drains."""
        if self._receiving is None:
            self._receiving = asyncio.ensure_future(self._request.receive())
        waiting = self._receiving
        seconds = self._config.idle_timeout_ms / 1000
        if not waiting.done():
            waiting.add_done_callback(lambda _: self._broker.changes.wake(self))
            # No partition is waited for: only the piece, the drain, or a client that sends nothing.
            await self._broker.changes.wait_for(self._topic, (), seconds, self)
        if not waiting.done():
            if not self._broker.ready:
                return None
            raise Problem("request-timeout", f"No data received for {seconds:g} s; the stream was closed.")
        self._receiving = None
        message = waiting.result()
        if message["type"] == "http.disconnect":
            raise ClientGoneError
        return message.get("body", b""), message.get("more_body", False)

    async def _take(self, write: Write, piece: bytes, more: bool) -> None:
        """Write the lines that are complete with this piece, and answer them."""
        end = len(piece) if not more else piece.rfind(b"\n") + 1
        lines: list[bytes] = []
        if end or not more:
            lines = b"".join((*self._rest, piece[:end])).split(b"\n")
            self._rest.clear()
        if end < len(piece):
            self._rest.append(piece[end:])
        held = sum(map(len, self._rest))
        self._request.hold_now(held)
        for start in range(0, len(lines), GROUP):
            items, self._count = self._owner.written(lines[start : start + GROUP], self._count)
            if items:
                answers = await self._write(items)
                await write(b"".join([_encode(answer) + b"\n" for answer in answers]))
                await asyncio.sleep(0)
        limit = self._config.http_max_body_bytes
        if held > limit:
            raise Problem(
                "payload-too-large",
                f"Line {self._count} has more than the {limit} bytes, which is the limit for one line.",
                extra={"limit": limit, "unit": "bytes"},
            )

    async def _write(self, items: Sequence[NewRecord | RecordWritten]) -> list[RecordWritten]:
        """Append the records among the items; the answers to all, in order."""
        records = [item for item in items if isinstance(item, NewRecord)]
        try:
            results = (
                await self._broker.records.produce(self._topic, records, acks=self._acks) if records else []
            )
            written = iter([written_record(result) for result in results])
        except BrokerError as error:
            # The whole group is refused, for example because the topic is deleted.
            written = iter([_refused(from_broker(error))] * len(records))
        return [next(written) if isinstance(item, NewRecord) else item for item in items]


def _refused(problem: Problem) -> RecordWritten:
    code = problem.code or ErrorCode.INVALID_RECORD
    reason = RecordError(problem.status, problem.detail, code.name, int(code), code.retriable)
    return RecordWritten(None, None, None, None, reason)
