"""The options of the sink, read as strictly as those of the source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from core.records.compression import CODECS
from pipeline import limits
from pipeline.source.options import SECURITY, Given, OptionError, client_settings
from pipeline.wire.cluster import ClientSettings
from pipeline.wire.http import HttpApi
from pipeline.wire.security import Security

AT_LEAST_ONCE, EXACTLY_ONCE = "at-least-once", "exactly-once"
# Options that mean something with delivery=exactly-once alone. The names of the last two are Delta Lake's.
_EXACTLY_ONCE = ("httpUrl", "kafka.transaction.timeout.ms", "txnAppId", "txnVersion")
WRITING = (
    "kafka.bootstrap.servers", "kafka.client.id", "kafka.request.timeout.ms", "kafka.default.api.timeout.ms",
    *SECURITY, "kafka.acks", "kafka.compression.type", "topic", "delivery", "marks",
    "recordsPerSecond", *_EXACTLY_ONCE,
    # Spark's own, which it hands on.
    "checkpointLocation", "queryName",
)  # fmt: skip
"""Every option of a write."""


_HTTP_PORT = 8082
# What a name in a transactional id and in a group may have. A slash would begin the next part of the id.
_MOST_NAME = 200


@dataclass(frozen=True)
class ExactlyOnceOptions:
    """What delivery=exactly-once is told. `app` and `version` name a write of `df.write`, None without a name."""

    http: HttpApi
    # The topic of the rows, and of the offset that says which batches are there.
    topic: str
    timeout_ms: int
    app: str | None = None
    version: int | None = None


@dataclass(frozen=True)
class WriteOptions:
    """All that a write was asked for. Picklable."""

    settings: ClientSettings
    topic: str | None
    codec: int
    delivery: str
    marks: bool
    # Records a second of each task; None sets no limit.
    rate: float | None = None
    # None with another delivery.
    exactly_once: ExactlyOnceOptions | None = None


def write_options(options: Mapping[str, str]) -> WriteOptions:
    """The options of a write, checked. Raises OptionError."""
    given = Given(options, WRITING)
    delivery = given.one_of("delivery", (AT_LEAST_ONCE, EXACTLY_ONCE))
    if (given.text("kafka.acks") or "all") not in ("all", "-1"):
        raise OptionError("kafka.acks must be all: an idempotent producer can promise nothing with less")
    names = ("none", *(name for name in CODECS if CODECS[name]))
    compression = given.one_of("kafka.compression.type", names)
    settings = client_settings(given)
    return WriteOptions(
        settings=settings,
        topic=given.text("topic"),
        codec=0 if compression == "none" else CODECS[compression],
        delivery=delivery,
        marks=given.flag("marks", True),
        rate=given.rate("recordsPerSecond"),
        exactly_once=_exactly_once(given, settings, delivery),
    )


def _exactly_once(given: Given, settings: ClientSettings, delivery: str) -> ExactlyOnceOptions | None:
    if delivery != EXACTLY_ONCE:
        for name in _EXACTLY_ONCE:
            if given.has(name):
                raise OptionError(f"{name} is for delivery={EXACTLY_ONCE} alone")
        return None
    topic = given.text("topic")
    if topic is None:
        raise OptionError(f"delivery={EXACTLY_ONCE} writes to one topic: name it with the option 'topic'")
    app, version = given.text("txnAppId"), given.number("txnVersion", least=0)
    if (app is None) != (version is None):
        raise OptionError("txnAppId and txnVersion are given together or not at all")
    if app is not None and not (0 < len(app) <= _MOST_NAME and app.isprintable() and "/" not in app):
        raise OptionError(f"txnAppId must have 1 to {_MOST_NAME} characters and no '/', not {app!r}")
    return ExactlyOnceOptions(
        http=HttpApi(_http_url(given, settings), settings.timeouts, settings.security),
        topic=topic,
        timeout_ms=given.number("kafka.transaction.timeout.ms") or limits.TRANSACTION_TIMEOUT_MS,
        app=app,
        version=version,
    )


def _http_url(given: Given, settings: ClientSettings) -> str:
    url = given.text("httpUrl")
    if url is None:
        if settings.security != Security():
            raise OptionError(
                f"delivery={EXACTLY_ONCE} needs httpUrl, the HTTP API of the same broker, with a login or TLS"
            )
        host = settings.bootstrap[0][0]
        return f"http://{f'[{host}]' if ':' in host else host}:{_HTTP_PORT}"
    parts = urlsplit(url)
    if parts.username is not None:
        raise OptionError("httpUrl takes no user: the login is that of kafka.sasl.username")
    try:
        port_fits = parts.port != 0
    except ValueError:
        port_fits = False
    if parts.scheme not in ("http", "https") or not parts.hostname or not port_fits or parts.query:
        raise OptionError(f"httpUrl must be like http://127.0.0.1:{_HTTP_PORT}, not {url!r}")
    return url.rstrip("/")
