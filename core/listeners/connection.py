"""One TCP connection of length-prefixed frames: bytes in, frames to a session, answers out in order.

Theory.
- One receive buffer serves all connections. A complete frame in it is handled in place, without a copy. Only a
  frame that is still arriving gets a buffer of its own. That buffer grows with the bytes that arrive, not with the
  size that the client announces.
- One request at a time. While one is under way (a long poll, a join) nothing more is read: the rest waits in the
  socket, so the client slows down. One kind of request does not hold up the next ones: its effect is complete, and
  only its answer waits for the disk (`Deferred`). Answers are sent in the order of their requests.
- Answers are sent in bounded pieces. A file is read when the socket can take more bytes. So a client that never
  reads holds one chunk of memory, no matter how much it asked for.
- Every phase has a deadline (`deadline`), which the acceptor's sweep enforces.

    frame      int32 size | size bytes
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from collections.abc import Callable, Coroutine
from struct import Struct
from typing import Any, Protocol, cast

from core.clock import Clock
from core.config import Config
from core.security.addresses import Addresses
from core.security.principal import ANONYMOUS, Principal
from core.security.quotas import QuotaTable
from core.security.tls import ServerCertificate, UnmappedPrincipalError
from core.types import FileSlice

log = logging.getLogger(__name__)

Piece = bytes | bytearray | memoryview | FileSlice
Answer = list[Piece] | None

_SIZE = Struct(">i")
_NEVER = float("inf")
# Bytes of one read from a socket, at most. All idle connections share this memory.
RECEIVE_BUFFER_BYTES = 256 * 1024
# The first buffer of a frame that is still arriving.
_FIRST_BYTES = 4096
# Bytes that are read from a file and passed to the transport at a time.
_CHUNK_BYTES = 512 * 1024
# Buffers of handled frames that are kept for the next frames: their number and their sizes.
_SPARE_BUFFERS = 4
_LEAST_SPARE = 128 * 1024
_LARGEST_SPARE = 4 * 1024 * 1024
# File slices of this size or more are sent by sendfile, from the page cache to the socket.
_DIRECT_BYTES = 64 * 1024
# Pieces of answers that wait for other answers to requests of the same read. One write takes this many.
_MAX_CORKED_PIECES = 64
# Answers that wait for earlier answers. The next request is handled when there are fewer.
_MAX_DEFERRED = 128


SPEAKS_TLS = "it speaks TLS, and this listener does not: give the listener the option tls"


def begins_with_tls(data: bytes | memoryview) -> bool:
    """Return whether these are the first bytes of a TLS handshake (RFC 8446, section 5.1)."""
    return bytes(data[:2]) == b"\x16\x03"


class RefusedError(Exception):
    """The connection must be closed; the message is the line in the log."""


class Last(list[Piece]):
    """The last answer of a connection, which is closed when it has been sent. Only a coroutine gives one."""


class Limits:
    """What a client may do that has not authenticated. The session changes it when that is over."""

    __slots__ = ("max_frame_bytes", "ready_by")

    def __init__(self, max_frame_bytes: int, ready_by: float) -> None:
        self.max_frame_bytes = max_frame_bytes
        # When the connection is closed at the latest, by the monotonic clock.
        self.ready_by = ready_by


class Deferred:
    """An answer that is given later, while the next requests are handled. Call `finish` or `fail` once."""

    __slots__ = ("_finished", "answer", "done", "error")

    def __init__(self) -> None:
        self.done = False
        self.answer: Answer = None
        self.error: BaseException | None = None
        self._finished: Callable[[], None] | None = None

    def finish(self, answer: Answer) -> None:
        """Take the answer: whole frames to send, None for none."""
        self.done, self.answer = True, answer
        if self._finished is not None:
            self._finished()

    def fail(self, error: BaseException) -> None:
        """There will be no answer: the connection is closed."""
        self.error = error
        self.finish(None)

    def when_finished(self, call: Callable[[], None]) -> None:
        """Call `call` when the answer is there."""
        self._finished = call
        if self.done:
            call()


class Session(Protocol):
    """What a listener keeps for one connection.

    `mute_ms` is how long nothing is read from the connection, because its client is beyond a quota. A session sets it
    while it handles a request; the connection takes it and sets it back to 0.
    """

    mute_ms: int

    def connected(self, peer_host: str, local_host: str, principal: Principal = ANONYMOUS) -> Limits | None:
        """Take the client's address, the address of ours that it connected to, and its principal.

        The principal is that of the client's certificate, and ANONYMOUS without one. Raises UnmappedPrincipalError
        for a principal that has no access to the listener. Return limits of the
        connection's own, if any.
        """
        ...

    def handle(self, frame: memoryview) -> Answer | Deferred | Coroutine[Any, Any, Answer]:
        """Return the answer to one frame: whole frames to send, None for none, or a coroutine that returns it.

        A `Deferred` is an answer for which the next request does not wait.

        `frame` is valid only during the call. Raises RefusedError.
        """
        ...

    def close(self) -> None:
        """Take note that the connection is closed."""
        ...


class Shared:
    """What the connections of one acceptor share: the receive buffer, the budget of bytes, the list of all.

    `certificate` is that of a listener with TLS. `addresses` counts the connections of each client's address.
    """

    def __init__(
        self,
        config: Config,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        certificate: ServerCertificate | None = None,
        addresses: Addresses | None = None,
    ) -> None:
        self.addresses = addresses if addresses is not None else Addresses(config, clock, QuotaTable())
        # Kept, because asyncio.get_running_loop makes a system call each time.
        self.loop = loop
        self.config = config
        self.clock = clock
        self.certificate = certificate
        self.buffer = bytearray(RECEIVE_BUFFER_BYTES)
        self.view = memoryview(self.buffer)
        self.connections: set[Connection] = set()
        self.inflight = 0
        # Of these, the bytes of clients that have not authenticated.
        self.unauthenticated = 0
        # Since the start: connections accepted, and connections closed because of invalid or missing data.
        self.accepted = 0
        self.refused = 0
        self.starved: deque[Connection] = deque()
        self._spare: list[bytearray] = []

    def take(self, capacity: int) -> bytearray:
        """Return a buffer of at least `size` bytes for an arriving frame. It counts in the budget until `release`.

        Large buffers are reused: fresh pages cost more time than the bytes that are read into them.
        """
        frame = None
        if self._spare and _LEAST_SPARE <= capacity <= len(self._spare[-1]):
            frame = self._spare.pop()
        if frame is None:
            frame = bytearray(capacity)
        self.inflight += len(frame)
        return frame

    def release(self, frame: bytearray) -> None:
        """Return a buffer, and wake the connections that wait for memory."""
        self.inflight -= len(frame)
        if _LEAST_SPARE <= len(frame) <= _LARGEST_SPARE and len(self._spare) < _SPARE_BUFFERS:
            self._spare.append(frame)
            self._spare.sort(key=len)
        while self.starved and self.inflight < self.config.max_inflight_bytes:
            self.starved.popleft().grow()


class Connection(asyncio.BufferedProtocol):
    """The protocol object of one connection."""

    def __init__(self, shared: Shared, session: Session) -> None:
        self._shared = shared
        self._session = session
        self._transport: asyncio.Transport | None = None
        self._peer = "?"
        # The client's address, while the connection counts among those of it.
        self._host: str | None = None
        self._head = b""
        self._frame: bytearray | None = None
        self._size = 0
        self._filled = 0
        self._backlog: bytearray | None = None
        self._task: asyncio.Task[Answer] | None = None
        # Deferred answers, and answers that must be sent after them.
        self._deferred: deque[Deferred | list[Piece]] = deque()
        self._settling = False
        self._out: deque[Piece] = deque()
        # Answers to requests that arrived in one read are sent in one write.
        self._corked = False
        self._write_paused = False
        self._read_paused = False
        self._draining = False
        self._limits: Limits | None = None
        self._muted: asyncio.TimerHandle | None = None
        # Bytes of the arriving frame that count among those of clients that have not authenticated.
        self._charged = 0
        self.deadline = _NEVER

    # --- life ----------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """asyncio: the connection is open."""
        shared = self._shared
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername") or ("?", 0)
        local = transport.get_extra_info("sockname") or ("?", 0)
        self._peer = f"{peer[0]}:{peer[1]}"
        # A connection with TLS was admitted at its accept, before the handshake.
        if shared.certificate is None and (reason := shared.addresses.admit(peer[0])):
            self.refuse(reason)
            return
        self._host = peer[0]
        try:
            principal = ANONYMOUS if shared.certificate is None else shared.certificate.principal(transport)
            self._limits = self._session.connected(peer[0], local[0], principal)
        except UnmappedPrincipalError as error:
            self.refuse(str(error))
            return
        if len(shared.connections) >= shared.config.max_connections:
            log.warning("%s: refused, %d connections are open", self._peer, len(shared.connections))
            shared.refused += 1
            self._transport.abort()
            return
        shared.connections.add(self)
        shared.accepted += 1
        self._transport.set_write_buffer_limits(high=_CHUNK_BYTES // 2, low=_CHUNK_BYTES // 8)
        self._set_deadline(shared.config.first_request_timeout_ms)

    def connection_lost(self, exc: Exception | None) -> None:
        """asyncio: the connection is closed; cancel the request that waits for it."""
        self._shared.connections.discard(self)
        if self._host is not None:
            self._shared.addresses.release(self._host)
        self._drop_frame()
        self._out.clear()
        self._deferred.clear()
        self._backlog = None
        self._transport = None
        self.deadline = _NEVER
        if self._muted is not None:
            self._muted.cancel()
            self._muted = None
        if self._task is not None:
            # Cancel one turn later. A task that has not started yet starts first, so that asyncio does not warn
            # of a coroutine that was never awaited.
            self._shared.loop.call_soon(self._task.cancel)
        self._session.close()

    def eof_received(self) -> bool:
        """asyncio: the client has disconnected. Its request is cancelled, so a dead long poll costs nothing."""
        return False

    def refuse(self, reason: str) -> None:
        """Close at once, with one line in the log."""
        if self._transport is not None:
            log.warning("%s: closed: %s", self._peer, reason)
            self._shared.refused += 1
            transport, self._transport = self._transport, None
            transport.abort()

    def drain(self) -> None:
        """Close as soon as the requests under way are answered."""
        self._draining = True
        if self._muted is not None:
            self._muted.cancel()
            self._muted = None
        if not self._busy() and not self._deferred:
            self._close()

    def expired(self, now: float) -> bool:
        """Return whether the deadline of the current phase has passed, or the session has ended its time."""
        return now >= self.deadline or (self._limits is not None and now >= self._limits.ready_by)

    def expire(self) -> None:
        """Close, because the current phase has taken too long."""
        if self._frame is not None or self._head:
            self.refuse("a request was not complete in time")
        elif self._out or self._write_paused:
            self.refuse("the client does not read its answers")
        else:  # an idle connection is no error: no log line
            self._close()

    def _close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def _set_deadline(self, milliseconds: int) -> None:
        self.deadline = self._shared.clock.monotonic() + milliseconds / 1000
        if self._limits is not None:
            self.deadline = min(self.deadline, self._limits.ready_by)

    def _busy(self) -> bool:
        """Return whether no request may be handled now: one is under way, or an answer, or it is closed."""
        stuck = bool(self._out) and not self._corked
        if self._task is not None or stuck or self._write_paused or self._transport is None:
            return True
        if self._muted is not None:
            return True
        deferred = self._deferred
        if not deferred:
            return False
        # A complete answer waits for the deferred answers before it. It may be large, so only one may wait.
        return self._draining or len(deferred) >= _MAX_DEFERRED or not isinstance(deferred[-1], Deferred)

    # --- in ------------------------------------------------------------------------------------------------

    def get_buffer(self, sizehint: int) -> memoryview:
        """asyncio: return the buffer for the next bytes."""
        if self._frame is not None:
            return memoryview(self._frame)[self._filled : self._size]
        if self._head:
            self._shared.view[: len(self._head)] = self._head
            return self._shared.view[len(self._head) :]
        return self._shared.view

    def buffer_updated(self, nbytes: int) -> None:
        """asyncio: `nbytes` bytes have arrived in the buffer."""
        if self._frame is None:
            end = nbytes + len(self._head)
            self._head = b""
            self._consume(self._shared.view[:end])
            return
        self._filled += nbytes
        if self._filled == self._size:
            frame, self._frame = self._frame, None
            if self._charged:
                self._discharge()
            self._handle(memoryview(frame)[: self._size])
            self._shared.release(frame)
        elif self._filled == len(self._frame):
            self.grow()

    def _consume(self, data: memoryview) -> None:
        self._corked = True
        position = self._handle_whole(data)
        self._corked = False
        if self._out:
            self._pump()
        if position < len(data) and self._transport is not None:
            self._keep(data, position)

    def _handle_whole(self, data: memoryview) -> int:
        """Handle the complete frames until one must wait. Return the position after the last one."""
        position, end = 0, len(data)
        while end - position >= 4 and not self._busy():
            limits = self._limits
            limit = self._shared.config.max_frame_bytes if limits is None else limits.max_frame_bytes
            (size,) = _SIZE.unpack_from(data, position)
            if not 0 <= size <= limit:
                plain = f"a frame of {size} bytes; 0 to {limit} are allowed"
                self.refuse(SPEAKS_TLS if begins_with_tls(data[position:]) else plain)
                break
            if end - position - 4 < size:
                break
            self._handle(data[position + 4 : position + 4 + size])
            position += 4 + size
        return position

    def _keep(self, data: memoryview, position: int) -> None:
        """Keep bytes that cannot be handled yet: requests that must wait, an incomplete frame or size."""
        if self._busy():
            self._backlog = bytearray(data[position:])
            self._pause()
        elif len(data) - position >= 4:
            self._begin_frame(_SIZE.unpack_from(data, position)[0], data[position + 4 :])
        else:
            self._head = bytes(data[position:])
            self._set_deadline(self._shared.config.frame_timeout_ms)

    def _begin_frame(self, size: int, arrived: memoryview) -> None:
        count = len(arrived)
        capacity = min(size, max(_FIRST_BYTES, 4 * count))
        if not self._charge(capacity):
            return
        self._frame = self._shared.take(capacity)
        self._frame[:count] = arrived
        self._size, self._filled = size, count
        self._set_deadline(self._shared.config.frame_timeout_ms)

    def grow(self) -> None:
        """Give the arriving frame a larger buffer, if the budget of all connections allows it."""
        if self._frame is None or self._transport is None:
            return
        shared = self._shared
        if shared.inflight >= shared.config.max_inflight_bytes:
            shared.starved.append(self)
            self._pause()
            return
        capacity = min(self._size, 4 * len(self._frame))
        if not self._charge(capacity):
            return
        small, self._frame = self._frame, shared.take(capacity)
        self._frame[: self._filled] = memoryview(small)[: self._filled]
        self._unpause()
        shared.release(small)

    def _charge(self, capacity: int) -> bool:
        """Count the buffer of a client that has not authenticated. Close the connection if these have too much."""
        if self._limits is None or self._limits.ready_by == _NEVER:
            return True
        shared = self._shared
        if shared.unauthenticated + capacity - self._charged > shared.config.unauthenticated_max_bytes:
            self.refuse("clients that have not authenticated have sent too much")
            return False
        shared.unauthenticated += capacity - self._charged
        self._charged = capacity
        return True

    def _discharge(self) -> None:
        self._shared.unauthenticated -= self._charged
        self._charged = 0

    def _drop_frame(self) -> None:
        if self._frame is not None:
            frame, self._frame = self._frame, None
            self._shared.release(frame)
        if self._charged:
            self._discharge()

    def _pause(self) -> None:
        if not self._read_paused and self._transport is not None:
            self._read_paused = True
            self._transport.pause_reading()

    def _unpause(self) -> None:
        if self._read_paused and self._transport is not None:
            self._read_paused = False
            self._transport.resume_reading()

    # --- handle --------------------------------------------------------------------------------------------

    def _handle(self, frame: memoryview) -> None:
        try:
            answer = self._session.handle(frame)
        except RefusedError as refusal:
            self.refuse(str(refusal))
            return
        except Exception:
            log.exception("%s: a request failed", self._peer)
            self.refuse("internal error")
            return
        if answer is None:
            self._rest()
        elif isinstance(answer, list):
            self._send(answer)
        elif isinstance(answer, Deferred):
            self.deadline = _NEVER
            self._deferred.append(answer)
            answer.when_finished(self._finished)
        else:
            self.deadline = _NEVER
            self._task = self._shared.loop.create_task(answer)
            self._task.add_done_callback(self._answered)
            return
        if self._session.mute_ms:
            self._mute()

    def _mute(self) -> None:
        """Handle no more requests for the time that the session asks for; those that arrive wait in the socket."""
        milliseconds, self._session.mute_ms = self._session.mute_ms, 0
        if self._transport is None or self._draining:
            return
        if self._muted is not None:
            self._muted.cancel()
        self._muted = self._shared.loop.call_later(milliseconds / 1000, self._unmute)

    def _unmute(self) -> None:
        self._muted = None
        self._continue()

    def _answered(self, task: asyncio.Task[Answer]) -> None:
        self._task = None
        if task.cancelled() or self._transport is None:
            if not task.cancelled():
                task.exception()  # the client has disconnected; without this call asyncio would log the error
            return
        error = task.exception()
        if isinstance(error, RefusedError):
            self.refuse(str(error))
        elif error is not None:
            log.error("%s: a request failed", self._peer, exc_info=error)
            self.refuse("internal error")
        elif isinstance(answer := task.result(), Last):
            # Requests that came after it are not looked at.
            self._backlog = None
            self._send(answer)
            self._close()
        else:
            self._send(answer or [])
            if self._session.mute_ms:
                self._mute()
            self._continue()

    def _finished(self) -> None:
        """A deferred answer is there. Send one turn later, so that all answers of one fsync share one write."""
        if not self._settling:
            self._settling = True
            self._shared.loop.call_soon(self._settle)

    def _settle(self) -> None:
        self._settling = False
        deferred = self._deferred
        while deferred:
            first = deferred[0]
            if isinstance(first, Deferred):
                if not first.done:
                    break
                if first.error is not None:
                    log.error("%s: a request failed", self._peer, exc_info=first.error)
                    self.refuse("internal error")
                    return
                self._out.extend(first.answer or ())
            else:
                self._out.extend(first)
            deferred.popleft()
        if self._transport is not None:
            self._pump()
            self._continue()

    def _continue(self) -> None:
        """Handle the requests that arrived while the last one was under way."""
        if self._busy():
            return
        if self._backlog is not None:
            backlog, self._backlog = self._backlog, None
            self._consume(memoryview(backlog))
            if self._busy():
                return
        if self._draining:
            if not self._deferred:
                self._close()
        elif self._frame is None or self._filled < len(self._frame):
            self._unpause()

    # --- out -----------------------------------------------------------------------------------------------

    def _send(self, pieces: list[Piece]) -> None:
        if self._deferred:
            self._deferred.append(pieces)
            return
        self._out.extend(pieces)
        if not self._corked or len(self._out) > _MAX_CORKED_PIECES or isinstance(pieces[-1], FileSlice):
            self._pump()

    def _pump(self) -> None:
        while self._out and not self._write_paused and self._transport is not None:
            ready: list[bytes | bytearray | memoryview] = []
            room = _CHUNK_BYTES
            while self._out and room > 0:
                piece = self._out.popleft()
                if isinstance(piece, FileSlice):
                    target = self._plain_socket() if piece.length >= _DIRECT_BYTES else None
                    if target is not None and self._transport.get_write_buffer_size() == 0:
                        left = self._send_directly(target, ready, piece)
                        if left is None:
                            return
                        ready = []
                        if left.length == 0:
                            continue
                        piece = left  # the socket is full: the transport waits for it with the next chunk
                    data = self._read_chunk(piece, room)
                    if data is None:
                        return
                    piece = data
                room -= len(piece)
                ready.append(piece)
            if ready:
                self._transport.writelines(ready)
        self._rest()

    def _rest(self) -> None:
        """Set the deadline of the phase after an answer was sent, or after a request without an answer."""
        config = self._shared.config
        if self._out or self._write_paused:
            self._set_deadline(config.write_timeout_ms)
        elif self._frame is not None or self._head:
            pass  # the arriving frame has its own deadline
        elif self._deferred:
            self.deadline = _NEVER
        else:
            self._set_deadline(config.idle_timeout_ms)

    def _plain_socket(self) -> int | None:
        """Return the socket's descriptor for direct writes; None under TLS, where they would not be encrypted."""
        assert self._transport is not None
        look_up = self._transport.get_extra_info
        if look_up("sslcontext") is not None or look_up("ssl_object") is not None:
            return None
        sock = look_up("socket")
        return None if sock is None else int(sock.fileno())

    def _send_directly(
        self, target: int, before: list[bytes | bytearray | memoryview], piece: FileSlice
    ) -> FileSlice | None:
        """Send file bytes by sendfile until the socket is full. Return the rest; None if the connection is closed.

        `target` is the descriptor of a socket without TLS: see `_plain_socket`. The transport's buffer must be
        empty, or bytes would be sent out of order. It takes a third of the processor time of read and write.
        """
        assert self._transport is not None
        position, end = piece.position, piece.position + piece.length
        try:
            while before:
                sent = os.writev(target, before)
                while before and sent >= len(before[0]):
                    sent -= len(before.pop(0))
                if sent:
                    before[0] = memoryview(before[0])[sent:]
            while position < end:
                sent = os.sendfile(target, piece.file.fileno(), position, end - position)
                if not sent:
                    self.refuse("a log file was cut while it was being sent")
                    return None
                position += sent
        except BlockingIOError:
            self._transport.writelines(before)
        except (BrokenPipeError, ConnectionError):
            self._transport.abort()
            return None
        except OSError as error:
            self.refuse(f"a log file cannot be sent ({error.strerror})")
            return None
        return FileSlice(piece.file, position, end - position)

    def _read_chunk(self, piece: FileSlice, room: int) -> bytes | None:
        """Return the next bytes of a file, and put the rest of the slice back to the front of the queue."""
        if piece.length > room:
            self._out.appendleft(FileSlice(piece.file, piece.position + room, piece.length - room))
            piece = FileSlice(piece.file, piece.position, room)
        try:
            data = piece.read()
        except OSError as error:
            self.refuse(f"a log file cannot be read ({error.strerror})")
            return None
        if len(data) != piece.length:
            self.refuse("a log file was cut while it was being sent")
            return None
        return data

    def pause_writing(self) -> None:
        """asyncio: the transport's write buffer is full; send no more."""
        self._write_paused = True
        self._set_deadline(self._shared.config.write_timeout_ms)

    def resume_writing(self) -> None:
        """asyncio: the transport's write buffer can take more bytes."""
        self._write_paused = False
        self._pump()
        self._continue()
