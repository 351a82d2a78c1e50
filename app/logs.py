"""Logs: one line for each event, for people (`console`) or machines (`json`), with the id of the request.

What a client has sent can stand in a line, so nothing in a line may end it or steer a terminal: whatever is
not printable is escaped, in both formats. A traceback on the console has more lines; each begins with `  |`.

The access log is written by a thread out of a bounded queue. When the lines come faster than they can be
written, they are dropped and counted: a slow pipe must not slow the requests. Neither queries nor bodies nor
header lines are logged, except User-Agent: they may hold private data.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import queue
import sys
from collections.abc import Iterator
from contextvars import ContextVar
from datetime import UTC, datetime
from logging.handlers import QueueListener
from typing import Any, NamedTuple, TextIO

from core.config import Config
from core.errors import StartupError
from core.security.audit import AUDIT

FORMATS = ("console", "json")
LEVELS = ("debug", "info", "warning", "error")
# The id of the HTTP request that this code runs for; empty outside of one.
# Fields of every line of this process: which worker it is.
LABELS: dict[str, str] = {}
REQUEST_ID: ContextVar[bytes] = ContextVar("request_id", default=b"")
_ACCESS = "access"
# Characters of one field in an access line; a path may have 64 KiB.
_MAX_FIELD = 500


class Visit(NamedTuple):
    """One answered request, as the access log shows it. Sizes are those of the bodies, in bytes."""

    time_ms: int
    request_id: bytes
    client: str
    method: str
    path: str
    status: int
    seconds: float
    bytes_in: int
    bytes_out: int
    user_agent: bytes


def escaped(text: str) -> str:
    """The text with everything that is not printable as `\\n`, `\\x1b`, `\\u202e`; a backslash stays one."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def cut(text: str) -> str:
    """A field of an access line, which may be as long as a client likes."""
    return text if len(text) <= _MAX_FIELD else text[:_MAX_FIELD] + "…"


def moment(seconds: float) -> str:
    """A time as RFC 3339 in UTC, with milliseconds."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    """Return the fields of a line other than time, level and logger."""
    fields: dict[str, Any] = {**LABELS, **getattr(record, "fields", {})}
    request_id = REQUEST_ID.get()
    if request_id and "request_id" not in fields:
        fields["request_id"] = request_id.decode("latin-1")
    return fields


class ConsoleFormatter(logging.Formatter):
    """`<time> LEVEL logger message name=value …`"""

    def format(self, record: logging.LogRecord) -> str:
        """One line, and the traceback if there is one."""
        parts = [moment(record.created), record.levelname, record.name]
        message = escaped(record.getMessage())
        if message:
            parts.append(message)
        for name, value in _fields(record).items():
            parts.append(f"{name}={_quoted(value)}")
        line = " ".join(parts)
        if record.exc_info:
            trace = self.formatException(record.exc_info)
            line += "".join("\n  | " + escaped(one) for one in trace.split("\n"))
        return line


def _quoted(value: object) -> str:
    if not isinstance(value, str):
        return str(value)
    if value and value.isprintable() and not any(c in value for c in ' "=\\'):
        return value
    return '"' + escaped(value.replace("\\", "\\\\").replace('"', '\\"')) + '"'


class JsonFormatter(logging.Formatter):
    """One JSON object in a line, ASCII alone."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        line: dict[str, Any] = {
            "time": moment(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
        }
        message = record.getMessage()
        if message:
            line["message"] = message
        line |= _fields(record)
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=True, default=str)


def formatter(config: Config) -> logging.Formatter:
    """The formatter that the settings ask for."""
    return JsonFormatter() if config.log_format == "json" else ConsoleFormatter()


@contextlib.contextmanager
def configured(config: Config, stream: TextIO | None = None) -> Iterator[None]:
    """The logs of this process go to `stream` (stderr) as the settings say, until the end of the block."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(formatter(config))
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    root.handlers[:] = [handler]
    root.setLevel(config.log_level.upper())
    try:
        with _audit_log(config, stream):
            yield
    finally:
        root.handlers[:] = before
        root.setLevel(level)


@contextlib.contextmanager
def _audit_log(config: Config, stream: TextIO | None) -> Iterator[None]:
    """Write the audit log as JSON to its file, or to `stream` (stderr), whatever format and level the settings say.

    The file is appended to, and readable by its owner alone. Raises StartupError.
    """
    audit = logging.getLogger(AUDIT)
    with contextlib.ExitStack() as stack:
        target = stream or sys.stderr
        if config.audit_log is not None:
            try:
                target = stack.enter_context(open(config.audit_log, "a", encoding="ascii", opener=_private))
            except OSError as error:
                text = f"The audit log {config.audit_log} cannot be written ({error.strerror})."
                raise StartupError(text) from None
        handler = logging.StreamHandler(target)
        handler.setFormatter(JsonFormatter())
        audit.handlers[:] = [handler]
        audit.propagate = False
        audit.setLevel(logging.INFO)
        try:
            yield
        finally:
            audit.handlers[:] = []
            audit.propagate = True
            audit.setLevel(logging.NOTSET)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


class AccessLog(QueueListener):
    """One line for each HTTP request, written by a thread; see `Visits`."""

    def __init__(self, config: Config, stream: TextIO | None = None) -> None:
        handler = logging.StreamHandler(stream or sys.stderr)
        handler.setFormatter(formatter(config))
        self._lines: queue.Queue[Visit | None] = queue.Queue(config.access_log_queue)
        super().__init__(self._lines, handler)
        self._patience = config.drain_timeout_ms / 1000
        self.dropped = 0

    def write(self, visit: Visit) -> None:
        """Take a line; dropped and counted when too many wait."""
        try:
            self._lines.put_nowait(visit)
        except queue.Full:
            self.dropped += 1

    def prepare(self, record: Any) -> logging.LogRecord:
        """In the thread: the line as a log record."""
        visit: Visit = record
        line = logging.LogRecord(_ACCESS, logging.INFO, "", 0, "", None, None)
        line.created = visit.time_ms / 1000
        line.__dict__["fields"] = {
            "request_id": visit.request_id.decode("latin-1"),
            "client": visit.client,
            "method": cut(visit.method),
            "path": cut(visit.path),
            "status": visit.status,
            "ms": round(visit.seconds * 1000, 3),
            "bytes_in": visit.bytes_in,
            "bytes_out": visit.bytes_out,
            "user_agent": cut(visit.user_agent.decode("latin-1")),
        }
        return line

    def enqueue_sentinel(self) -> None:
        """Note that no more lines follow. Wait for space in the queue, so that a full one is written first."""
        self._lines.put(None, timeout=self._patience)

    def stop(self) -> None:
        """Write what waits, then end. A stream that takes nothing is given up after the drain time."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        with contextlib.suppress(queue.Full):
            self.enqueue_sentinel()
            thread.join(self._patience)
        if self.dropped:
            logging.getLogger("sluice.access").warning(
                "%d lines of the access log were dropped", self.dropped
            )


@contextlib.contextmanager
def access_log(config: Config, stream: TextIO | None = None) -> Iterator[AccessLog | None]:
    """The access log while the block runs, if the settings want one."""
    if not config.access_log:
        yield None
        return
    access = AccessLog(config, stream)
    access.start()
    try:
        yield access
    finally:
        access.stop()
