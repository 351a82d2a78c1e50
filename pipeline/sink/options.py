"""The options of the sink, read as strictly as those of the source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from core.records.compression import CODECS
from pipeline.source.options import SECURITY, Given, OptionError, client_settings
from pipeline.wire.cluster import ClientSettings

AT_LEAST_ONCE, EXACTLY_ONCE = "at-least-once", "exactly-once"
WRITING = (
    "kafka.bootstrap.servers", "kafka.client.id", "kafka.request.timeout.ms", "kafka.default.api.timeout.ms",
    *SECURITY, "kafka.acks", "kafka.compression.type", "topic", "delivery", "marks",
    "recordsPerSecond",
    # Spark's own, which it hands on.
    "checkpointLocation", "queryName",
)  # fmt: skip
"""Every option of a write."""


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


def write_options(options: Mapping[str, str]) -> WriteOptions:
    """The options of a write, checked. Raises OptionError."""
    given = Given(options, WRITING)
    delivery = given.one_of("delivery", (AT_LEAST_ONCE, EXACTLY_ONCE))
    if delivery == EXACTLY_ONCE:
        raise OptionError(
            f"delivery={EXACTLY_ONCE} needs transactions, which are not there yet; {AT_LEAST_ONCE} marks every "
            "record, so that readers can drop duplicates"
        )
    if (given.text("kafka.acks") or "all") not in ("all", "-1"):
        raise OptionError("kafka.acks must be all: an idempotent producer can promise nothing with less")
    names = ("none", *(name for name in CODECS if CODECS[name]))
    compression = given.one_of("kafka.compression.type", names)
    return WriteOptions(
        settings=client_settings(given),
        topic=given.text("topic"),
        codec=0 if compression == "none" else CODECS[compression],
        delivery=delivery,
        marks=given.flag("marks", True),
        rate=given.rate("recordsPerSecond"),
    )
