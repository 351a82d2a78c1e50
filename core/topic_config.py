"""Topic-level settings: names, types, defaults and limits, as Kafka 4.1 has them.

One table, `DEFINITIONS`, is the source for parsing, for DescribeConfigs and for the documentation. It has the 33
settings of Kafka 4.1 and three that Kafka 4 has removed and older clients still send (`older`). A setting that is
not in the table is refused, not ignored. A setting that has no field in `TopicConfig` is checked, stored and
described, and has no effect here (`STORED_ONLY`).

Values are refused in Kafka's own words: tools look for them. Source: Kafka's `TopicConfig` and `LogConfig`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from core.config import Config
from core.errors import BrokerError, ErrorCode

LONG_MAX = 2**63 - 1
INT_MAX = 2**31 - 1
COMPRESSION_TYPES = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")
DIFFERENCE = "message.timestamp.difference.max.ms"

# What three of the settings are by default is a setting of the broker.
_BROKER = Config()
_BITS = {"INT": INT_MAX, "LONG": LONG_MAX}
# Kafka takes no "_"; settings that earlier releases have stored may have them.
_WHOLE_NUMBER = re.compile(r"[+-]?\d+(_\d+)*")
_DECIMAL_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")
# Longer texts are no numbers; Python's limit on digits is never reached.
_NUMBER_LENGTH = 64
# Characters of a refused value that are shown.
_SHOWN = 200
_REPLICAS = re.compile(r"[0-9]+:[0-9]+")
_VERSION = re.compile(r"[0-9]+\.[0-9]+(\.[0-9]+)*(-IV[0-9]+)?")
_REPLICAS_WANTED = (
    "must be the literal '*' or a list of replicas in the following format: "
    "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
)


@dataclass(frozen=True, slots=True)
class Definition:
    """One setting: its Kafka name, its type as DescribeConfigs names it, default, bounds and meaning.

    `broker` is the broker's setting of the same meaning, which holds for topics that do not set their own; empty
    where Kafka has none. `alone` is a value that is allowed outside of the bounds.
    """

    name: str
    type: str  # BOOLEAN STRING INT LONG LIST DOUBLE
    default: str
    doc: str
    minimum: int | None = None
    maximum: int | None = None
    choices: tuple[str, ...] = ()
    broker: str = ""
    alone: int | None = None
    pattern: re.Pattern[str] | None = None
    # What a value that does not match `pattern` is told.
    wanted: str = ""
    # Not in Kafka 4: described for topics that set it, and for no others.
    older: bool = False

    @property
    def attribute(self) -> str:
        """The name of the field of `TopicConfig` that holds the parsed value."""
        return self.name.replace(".", "_")

    def parse(self, text: str) -> Any:
        """Return the value that `text` means: bool, int, float, str, or a frozenset for a list.

        Raises INVALID_CONFIG with the reason, in Kafka's words.
        """
        text = text.strip()
        if self.type == "BOOLEAN":
            if text.lower() not in ("true", "false"):
                raise self.invalid(text, "Expected value to be either true or false")
            return text.lower() == "true"
        if self.type == "LIST":
            return frozenset(self._items(text))
        if self.type != "STRING":
            return self._parse_number(text)
        if self.choices and text not in self.choices:
            raise self.invalid(text, f"String must be one of: {', '.join(self.choices)}")
        if self.pattern is not None and not self.pattern.fullmatch(text):
            raise self.invalid(text, self.wanted)
        return text

    def normal(self, text: str) -> str:
        """Return a value that `parse` accepts as DescribeConfigs shows it: ' 07' is '7', 'TRUE' is 'true'."""
        if self.type == "LIST":
            return ",".join(self._items(text))
        value = self.parse(text)
        return str(value).lower() if self.type == "BOOLEAN" else str(value)

    def _items(self, text: str) -> list[str]:
        items = list_items(text)
        for item in items:
            if self.choices and item not in self.choices:
                raise self.invalid(item, f"String must be one of: {', '.join(self.choices)}")
            if self.pattern is not None and not self.pattern.fullmatch(item) and items != ["*"]:
                raise self.invalid(f"[{', '.join(items)}]", f"{self.name} {self.wanted}")
        return items

    def _parse_number(self, text: str) -> int | float:
        form = _DECIMAL_NUMBER if self.type == "DOUBLE" else _WHOLE_NUMBER
        if len(text) > _NUMBER_LENGTH or not form.fullmatch(text):
            raise self.invalid(text, f"Not a number of type {self.type}")
        value = float(text) if self.type == "DOUBLE" else int(text)
        bits = _BITS.get(self.type)
        if bits is not None and not -bits - 1 <= value <= bits:
            raise self.invalid(text, f"Not a number of type {self.type}")
        low, high = self.minimum, self.maximum
        if value != self.alone and ((low is not None and value < low) or (high is not None and value > high)):
            raise self.invalid(text, self._bounds(value))
        return value

    def _bounds(self, value: float) -> str:
        if self.alone is not None:
            return f"Value must be between {self.minimum} and {self.maximum} or equal to {self.alone}"
        if self.minimum is not None and value < self.minimum:
            return f"Value must be at least {self.minimum}"
        return f"Value must be no more than {self.maximum}"

    def invalid(self, text: str, why: str) -> BrokerError:
        """Return the INVALID_CONFIG error for a value, as Kafka words it."""
        return BrokerError(
            ErrorCode.INVALID_CONFIG,
            f"Invalid value {text[:_SHOWN]} for configuration {self.name}: {why}",
            config=self.name,
        )


def list_items(text: str) -> list[str]:
    """Return the parts of a comma-separated value, without blanks, empty parts and repetitions, in their order."""
    return list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


DEFINITIONS: dict[str, Definition] = {
    d.name: d
    for d in (
        Definition(
            "cleanup.policy", "LIST", "delete",
            "Delete old segments, keep the latest per key, or both. Empty keeps everything.",
            choices=("compact", "delete"), broker="log.cleanup.policy",
        ),
        Definition(
            "compression.gzip.level", "INT", "-1", "The level with compression.type gzip; -1 is zlib's own, 6.",
            minimum=1, maximum=9, alone=-1, broker="compression.gzip.level",
        ),
        Definition(
            "compression.lz4.level", "INT", "9",
            "The level with compression.type lz4. As in Kafka, 9 is the fast mode; all others compress more.",
            minimum=1, maximum=17, broker="compression.lz4.level",
        ),
        Definition(
            "compression.type", "STRING", "producer", "'producer' stores batches as they were sent.",
            choices=COMPRESSION_TYPES, broker="compression.type",
        ),
        Definition(
            "compression.zstd.level", "INT", "3", "The level with compression.type zstd.",
            minimum=-131072, maximum=22, broker="compression.zstd.level",
        ),
        Definition(
            "delete.retention.ms", "LONG", "86400000",
            "How long a tombstone stays readable after compaction.",
            minimum=0, broker="log.cleaner.delete.retention.ms",
        ),
        Definition(
            "file.delete.delay.ms", "LONG", str(_BROKER.file_delete_delay_ms),
            "How long the files of a deleted segment stay on disk.",
            minimum=0, broker="log.segment.delete.delay.ms",
        ),
        Definition(
            "flush.messages", "LONG", str(LONG_MAX),
            "fsync after this many records, with any acks.", minimum=1, broker="log.flush.interval.messages",
        ),
        Definition(
            "flush.ms", "LONG", str(LONG_MAX), "fsync at the latest so long after an append.",
            minimum=0, broker="log.flush.interval.ms",
        ),
        Definition(
            "follower.replication.throttled.replicas", "LIST", "",
            "Replicas whose fetches are throttled. Stored only: the broker does not throttle replication.",
            pattern=_REPLICAS, wanted=_REPLICAS_WANTED,
        ),
        Definition(
            "index.interval.bytes", "INT", str(_BROKER.index_interval_bytes),
            "The least number of log bytes between two index entries. A change takes effect with the next segment.",
            minimum=0, broker="log.index.interval.bytes",
        ),
        Definition(
            "leader.replication.throttled.replicas", "LIST", "",
            "Replicas whose leaders are throttled. Stored only: the broker does not throttle replication.",
            pattern=_REPLICAS, wanted=_REPLICAS_WANTED,
        ),
        Definition(
            "local.retention.bytes", "LONG", "-2",
            "Local bytes with tiered storage. Stored only: there is no tiered storage.",
            minimum=-2, broker="log.local.retention.bytes",
        ),
        Definition(
            "local.retention.ms", "LONG", "-2",
            "Local time with tiered storage. Stored only: there is no tiered storage.",
            minimum=-2, broker="log.local.retention.ms",
        ),
        Definition(
            "max.compaction.lag.ms", "LONG", str(LONG_MAX), "How long a record stays uncompacted at most.",
            minimum=1, broker="log.cleaner.max.compaction.lag.ms",
        ),
        Definition(
            "max.message.bytes", "INT", "1048588",
            "The largest record batch that is taken, in bytes.", minimum=0, broker="message.max.bytes",
        ),
        Definition(
            "message.downconversion.enable", "BOOLEAN", "true",
            "Of Kafka 3 and older. Stored only: older clients are always served.", older=True,
        ),
        Definition(
            "message.format.version", "STRING", "3.0",
            "Of Kafka 3 and older. Stored only: batches are always stored in format 2.",
            pattern=_VERSION, wanted="Version must look like 3.0 or 2.8-IV1", older=True,
        ),
        Definition(
            "message.timestamp.after.max.ms", "LONG", "3600000",
            "How far a timestamp may lie ahead of the broker's clock.",
            minimum=0, broker="log.message.timestamp.after.max.ms",
        ),
        Definition(
            "message.timestamp.before.max.ms", "LONG", str(LONG_MAX),
            "How much earlier than the broker's clock a timestamp may be.",
            minimum=0, broker="log.message.timestamp.before.max.ms",
        ),
        Definition(
            DIFFERENCE, "LONG", str(LONG_MAX),
            "Of Kafka 3 and older: both message.timestamp.before.max.ms and after, where these are not set.",
            minimum=0, older=True,
        ),
        Definition(
            "message.timestamp.type", "STRING", "CreateTime", "The producer's time or the broker's.",
            choices=TIMESTAMP_TYPES, broker="log.message.timestamp.type",
        ),
        Definition(
            "min.cleanable.dirty.ratio", "DOUBLE", str(_BROKER.compaction_min_dirty_ratio),
            "A log is compacted when this share of it is new since the last time.",
            minimum=0, maximum=1, broker="log.cleaner.min.cleanable.ratio",
        ),
        Definition(
            "min.compaction.lag.ms", "LONG", "0", "How long a record stays uncompacted at least.",
            minimum=0, broker="log.cleaner.min.compaction.lag.ms",
        ),
        Definition(
            "min.insync.replicas", "INT", "1", "Replicas that must have a write before acks=all is answered.",
            minimum=1, broker="min.insync.replicas",
        ),
        Definition(
            "preallocate", "BOOLEAN", "false",
            "Reserve a segment's whole size. Stored only: segment files grow as they are written.",
            broker="log.preallocate",
        ),
        Definition(
            "remote.log.copy.disable", "BOOLEAN", "false", "Stored only: there is no tiered storage."
        ),
        Definition(
            "remote.log.delete.on.disable", "BOOLEAN", "false", "Stored only: there is no tiered storage."
        ),
        Definition(
            "remote.storage.enable", "BOOLEAN", "false", "There is no tiered storage: true is refused."
        ),
        Definition(
            "retention.bytes", "LONG", "-1", "Bytes kept per partition; -1 keeps all.",
            broker="log.retention.bytes",
        ),
        Definition(
            "retention.ms", "LONG", "604800000",
            "How long records are kept; -1 sets no limit.", minimum=-1, broker="log.retention.ms",
        ),
        Definition(
            "segment.bytes", "INT", "1073741824", "A segment is rolled at this size.",
            minimum=14, broker="log.segment.bytes",
        ),
        Definition(
            "segment.index.bytes", "INT", "10485760",
            "A segment is rolled when one of its indexes has this size. Holds from the next segment on.",
            minimum=4, broker="log.index.size.max.bytes",
        ),
        Definition(
            "segment.jitter.ms", "LONG", "0",
            "A segment is rolled earlier than segment.ms by a random time up to this.",
            minimum=0, broker="log.roll.jitter.ms",
        ),
        Definition(
            "segment.ms", "LONG", "604800000",
            "A segment is rolled at this age, also when it is small.", minimum=1, broker="log.roll.ms",
        ),
        Definition(
            "unclean.leader.election.enable", "BOOLEAN", "false",
            "Stored only: a broker never takes over a partition with fewer records than were acknowledged.",
            broker="unclean.leader.election.enable",
        ),
    )
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """The parsed settings of one topic that have an effect. Sizes in bytes, times in milliseconds."""

    cleanup_policy: frozenset[str] = frozenset({"delete"})
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_type: str = "producer"
    compression_zstd_level: int = 3
    delete_retention_ms: int = 86_400_000
    file_delete_delay_ms: int = _BROKER.file_delete_delay_ms
    flush_messages: int = LONG_MAX
    flush_ms: int = LONG_MAX
    index_interval_bytes: int = _BROKER.index_interval_bytes
    max_compaction_lag_ms: int = LONG_MAX
    max_message_bytes: int = 1_048_588
    message_timestamp_after_max_ms: int = 3_600_000
    message_timestamp_before_max_ms: int = LONG_MAX
    message_timestamp_type: str = "CreateTime"
    min_cleanable_dirty_ratio: float = _BROKER.compaction_min_dirty_ratio
    min_compaction_lag_ms: int = 0
    min_insync_replicas: int = 1
    retention_bytes: int = -1
    retention_ms: int = 604_800_000
    segment_bytes: int = 1_073_741_824
    segment_index_bytes: int = 10_485_760
    segment_jitter_ms: int = 0
    segment_ms: int = 604_800_000
    # The age at which a segment is rolled: a record in the active segment cannot be compacted (KIP-354).
    roll_ms: int = field(init=False)

    def __post_init__(self) -> None:
        """Derive `roll_ms`."""
        lag = self.max_compaction_lag_ms if self.compacted else LONG_MAX
        object.__setattr__(self, "roll_ms", min(self.segment_ms, lag))

    @property
    def compacted(self) -> bool:
        """Whether the latest record per key is kept."""
        return "compact" in self.cleanup_policy

    @property
    def deletes(self) -> bool:
        """Whether old segments are deleted by age and size."""
        return "delete" in self.cleanup_policy

    @property
    def compression_level(self) -> int | None:
        """The level of the topic's own codec; None where the codec has no levels."""
        levels = {
            "gzip": self.compression_gzip_level,
            "lz4": self.compression_lz4_level,
            "zstd": self.compression_zstd_level,
        }
        return levels.get(self.compression_type)


_EFFECTIVE = frozenset(f.name for f in fields(TopicConfig) if f.init)
STORED_ONLY = frozenset(
    name for name, one in DEFINITIONS.items() if one.attribute not in _EFFECTIVE and name != DIFFERENCE
)
"""Settings that are checked, stored and described, and that change nothing."""


def parse_topic_config(
    overrides: Mapping[str, str], defaults: Mapping[str, str] | None = None
) -> TopicConfig:
    """Return the settings of a topic from its own overrides and the broker's defaults, both as text.

    Raises INVALID_CONFIG for an unknown name, a value out of bounds, or values that exclude each other.
    """
    values: dict[str, Any] = {}
    for source in (defaults or {}, overrides):
        parsed = {name: definition(name).parse(text) for name, text in source.items()}
        if DIFFERENCE in parsed:
            values["message_timestamp_before_max_ms"] = parsed[DIFFERENCE]
            values["message_timestamp_after_max_ms"] = parsed[DIFFERENCE]
        if parsed.get("remote.storage.enable"):
            raise BrokerError(
                ErrorCode.INVALID_CONFIG,
                "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote "
                "log storage.",
                config="remote.storage.enable",
            )
        values |= {DEFINITIONS[name].attribute: value for name, value in parsed.items()}
    config = TopicConfig(**{name: value for name, value in values.items() if name in _EFFECTIVE})
    if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
        raise BrokerError(
            ErrorCode.INVALID_CONFIG,
            f"conflict topic config setting min.compaction.lag.ms ({config.min_compaction_lag_ms}) > "
            f"max.compaction.lag.ms ({config.max_compaction_lag_ms})",
            config="min.compaction.lag.ms",
        )
    return config


def definition(name: str) -> Definition:
    """Return the definition of a setting. Raises INVALID_CONFIG for a name that is not in the table."""
    found = DEFINITIONS.get(name)
    if found is None:
        raise BrokerError(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {name}", config=name)
    return found


def described(overrides: Iterable[str] = ()) -> list[Definition]:
    """Return the settings that are described, by name: Kafka 4's, and older ones that are among `overrides`."""
    given = set(overrides)
    return [one for name, one in sorted(DEFINITIONS.items()) if not one.older or name in given]
