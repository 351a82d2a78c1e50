"""How a stream of records looks on the wire: server-sent events, and newline-delimited JSON.

Server-sent events (the HTML standard, section 9.2): each event has `id`, the cursor after it. So a browser that
reconnects with `Last-Event-ID` misses no record and gets no duplicate. An `id` line alone updates the browser's
position without an event; it is sent with the comment if no record matched the filter.

NDJSON: a line for each record, with its cursor as one more member; a line without an `offset` is about the
stream itself. An empty line is its comment.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from app.native.streams.cursor import Position
from app.native.streams.fanout import Feed, Taken

_encode = msgspec.json.Encoder(enc_hook=str).encode


def _with_cursors(feed: Feed, taken: Taken) -> Iterator[tuple[bytes, bytes]]:
    """Each record on one line, and the cursor after it."""
    offsets = list(taken.before.offsets)
    for at, found, used in taken.parts:
        cursors = feed.writer.after_each(offsets, at, found.ends[:used])
        yield from zip(found.lines, cursors, strict=False)
        offsets[at] = found.end_of(used)


class ServerSentEvents:
    """`text/event-stream`."""

    name = "sse"
    media_type = b"text/event-stream"

    def records(self, feed: Feed, taken: Taken) -> bytes:
        """An event `record` for each."""
        return b"".join(
            [
                b"id: %b\nevent: record\ndata: %b\n\n" % (cursor, line)
                for line, cursor in _with_cursors(feed, taken)
            ]
        )

    def hello(self, retry_ms: int) -> bytes:
        """The first bytes of a stream: when to reconnect."""
        return b"retry: %d\n\n" % retry_ms

    def caught_up(self, feed: Feed, position: Position) -> bytes:
        """All that was there has been sent; what follows is new."""
        cursor = feed.writer.text(position)
        return b'id: %b\nevent: caught_up\ndata: {"cursor":"%b"}\n\n' % (cursor, cursor)

    def comment(self, feed: Feed, position: Position | None) -> bytes:
        """Nothing happened; a position that has moved silently all the same."""
        if position is None:
            return b": still here\n\n"
        return b": still here\nid: %b\n\n" % feed.writer.text(position)

    def problem(self, feed: Feed, position: Position, document: Mapping[str, object]) -> bytes:
        """Something could not be sent. The stream continues, or ends, after it."""
        return b"id: %b\nevent: problem\ndata: %b\n\n" % (feed.writer.text(position), _encode(document))

    def bye(self, feed: Feed, position: Position, reason: str, retry_ms: int) -> bytes:
        """The end, by the server's wish; connect again after `retry_ms`."""
        cursor = feed.writer.text(position)
        data = _encode({"reason": reason, "cursor": cursor.decode()})
        return b"id: %b\nevent: bye\nretry: %d\ndata: %b\n\n" % (cursor, retry_ms, data)


class JsonLines:
    """`application/x-ndjson`."""

    name = "ndjson"
    media_type = b"application/x-ndjson"

    def records(self, feed: Feed, taken: Taken) -> bytes:
        """A line for each."""
        return b"".join(
            [b'%b,"cursor":"%b"}\n' % (line[:-1], cursor) for line, cursor in _with_cursors(feed, taken)]
        )

    def hello(self, retry_ms: int) -> bytes:
        """Nothing: the first line is a record."""
        return b""

    def caught_up(self, feed: Feed, position: Position) -> bytes:
        """Nothing, for the same reason."""
        return b""

    def comment(self, feed: Feed, position: Position | None) -> bytes:
        """An empty line."""
        return b"\n"

    def problem(self, feed: Feed, position: Position, document: Mapping[str, object]) -> bytes:
        """A line of its own kind."""
        return _encode({"problem": document, "cursor": feed.writer.text(position).decode()}) + b"\n"

    def bye(self, feed: Feed, position: Position, reason: str, retry_ms: int) -> bytes:
        """A line of its own kind; the stream ends after it."""
        about = {"reason": reason, "retry_ms": retry_ms}
        return _encode({"bye": about, "cursor": feed.writer.text(position).decode()}) + b"\n"


StreamForm = ServerSentEvents | JsonLines
SSE, NDJSON = ServerSentEvents(), JsonLines()
