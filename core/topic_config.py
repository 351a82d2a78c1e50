"""Topic-level settings: names, types, defaults and limits, as Kafka's guide lists them.

One table, `DEFINITIONS`, is the source for parsing, for DescribeConfigs and for the documentation. A setting
that is not in the table is refused, not ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from core.errors import BrokerError, ErrorCode

LONG_MAX = 2**63 - 1
INT_MAX = 2**31 - 1
COMPRESSION_TYPES = ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd")
TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")


@dataclass(frozen=True, slots=True)
class Definition:
    """One setting: its Kafka name, its type as DescribeConfigs names it, default, bounds and meaning."""

    name: str
    type: str  # BOOLEAN STRING INT LONG LIST DOUBLE
    default: str
    doc: str
    minimum: int | None = None
    maximum: int | None = None
    choices: tuple[str, ...] = ()

    @property
    def attribute(self) -> str:
        """The name of the field of `TopicConfig` that holds the parsed value."""
        return self.name.replace(".", "_")

    def parse(self, text: str) -> Any:
        """The value that `text` stands for; raises INVALID_CONFIG with what would be right."""
        text = text.strip()
        if self.type in ("INT", "LONG"):
            return self._parse_number(text)
        if self.type == "LIST":
            items = tuple(part.strip() for part in text.split(",") if part.strip())
            if not items or any(item not in self.choices for item in items):
                raise self._invalid(text, f"a comma-separated list of {', '.join(self.choices)}")
            return frozenset(items)
        if self.choices and text not in self.choices:
            raise self._invalid(text, f"one of {', '.join(self.choices)}")
        return text

    def _parse_number(self, text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise self._invalid(text, "a whole number") from None
        low = self.minimum if self.minimum is not None else -LONG_MAX
        high = self.maximum if self.maximum is not None else (INT_MAX if self.type == "INT" else LONG_MAX)
        if not low <= value <= high:
            raise self._invalid(text, f"a whole number from {low} to {high}")
        return value

    def _invalid(self, text: str, right: str) -> BrokerError:
        return BrokerError(
            ErrorCode.INVALID_CONFIG,
            f"Invalid value {text!r} for configuration {self.name}: it must be {right}.",
            config=self.name,
        )


DEFINITIONS: dict[str, Definition] = {
    d.name: d
    for d in (
        Definition(
            "cleanup.policy", "LIST", "delete", "Delete old segments, keep the latest per key, or both.",
            choices=("delete", "compact"),
        ),
        Definition(
            "compression.type", "STRING", "producer", "'producer' stores batches as they were sent.",
            choices=COMPRESSION_TYPES,
        ),
        Definition(
            "delete.retention.ms", "LONG", "86400000",
            "How long a tombstone stays readable after compaction.",
            minimum=0,
        ),
        Definition(
            "flush.messages", "LONG", str(LONG_MAX),
            "fsync after so many records, whatever the acks.", minimum=1
        ),
        Definition("flush.ms", "LONG", str(LONG_MAX),
            "fsync at the latest so long after an append.", minimum=0),
        Definition(
            "max.message.bytes", "INT", "1048588",
            "The largest record batch that is taken, in bytes.", minimum=0
        ),
        Definition(
            "message.timestamp.after.max.ms", "LONG", "3600000",
            "How far a timestamp may lie ahead of the broker's clock.", minimum=0,
        ),
        Definition(
            "message.timestamp.before.max.ms", "LONG", str(LONG_MAX),
            "How far a timestamp may lie behind the broker's clock.", minimum=0,
        ),
        Definition(
            "message.timestamp.type", "STRING", "CreateTime", "The producer's time or the broker's.",
            choices=TIMESTAMP_TYPES,
        ),
        Definition(
            "min.compaction.lag.ms", "LONG", "0", "How long a record stays uncompacted at least.", minimum=0
        ),
        Definition(
            "min.insync.replicas", "INT", "1", "Replicas that must have a write before acks=all is answered.",
            minimum=1,
        ),
        Definition(
            "retention.bytes", "LONG", "-1", "Bytes kept per partition; -1 keeps all.", minimum=-1
        ),
        Definition(
            "retention.ms", "LONG", "604800000",
            "How long records are kept; -1 keeps them for ever.", minimum=-1
        ),
        Definition(
            "segment.bytes", "INT", "1073741824", "A segment is rolled at this size.", minimum=14
        ),
        Definition(
            "segment.ms", "LONG", "604800000",
            "A segment is rolled at this age, also when it is small.", minimum=1
        ),
    )
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """The parsed settings of one topic. Sizes in bytes, times in milliseconds."""

    cleanup_policy: frozenset[str] = frozenset({"delete"})
    compression_type: str = "producer"
    delete_retention_ms: int = 86_400_000
    flush_messages: int = LONG_MAX
    flush_ms: int = LONG_MAX
    max_message_bytes: int = 1_048_588
    message_timestamp_after_max_ms: int = 3_600_000
    message_timestamp_before_max_ms: int = LONG_MAX
    message_timestamp_type: str = "CreateTime"
    min_compaction_lag_ms: int = 0
    min_insync_replicas: int = 1
    retention_bytes: int = -1
    retention_ms: int = 604_800_000
    segment_bytes: int = 1_073_741_824
    segment_ms: int = 604_800_000

    @property
    def compacted(self) -> bool:
        """Whether the latest record per key is kept."""
        return "compact" in self.cleanup_policy

    @property
    def deletes(self) -> bool:
        """Whether old segments go by age and size."""
        return "delete" in self.cleanup_policy


def parse_topic_config(
    overrides: Mapping[str, str], defaults: Mapping[str, str] | None = None
) -> TopicConfig:
    """The settings of a topic from its own overrides and the broker's defaults, both as text.

    Raises INVALID_CONFIG for an unknown name or a value out of bounds.
    """
    values: dict[str, Any] = {}
    for source in (defaults or {}, overrides):
        for name, text in source.items():
            values[definition(name).attribute] = definition(name).parse(text)
    return TopicConfig(**values)


def definition(name: str) -> Definition:
    """The definition of a setting; raises INVALID_CONFIG for a name that is not supported."""
    found = DEFINITIONS.get(name)
    if found is None:
        raise BrokerError(
            ErrorCode.INVALID_CONFIG,
            f"Unknown topic config name: {name}. Supported are: {', '.join(sorted(DEFINITIONS))}.",
            config=name,
        )
    return found


assert {f.name for f in fields(TopicConfig)} == {d.attribute for d in DEFINITIONS.values()}
