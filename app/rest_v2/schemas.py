"""The bodies of v2 in JSON: requests and answers.

Requests are read leniently: numbers and switches may be strings, as clients in shell and Java send them.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from core.config import Config

PartitionNumber = Annotated[int, Meta(ge=0, le=2**31 - 1)]
OffsetNumber = Annotated[int, Meta(ge=0, le=2**63 - 2)]
_EMBEDDED = "In the embedded format of the media type; null or absent is null."
_LIMITS = Config()
_PLACES = [{"topic": "orders", "partition": 0}]
_OFFSETS = [{"topic": "orders", "partition": 0, "offset": 41}]
_PARTITION = {"partition": 0, "leader": 1, "replicas": [{"broker": 1, "leader": True, "in_sync": True}]}
_IGNORED = "Ignored, so that a record can be written as it was read."


class ErrorMessage(Struct):
    """The body of every refusal."""

    error_code: int
    message: str


# --- metadata -----------------------------------------------------------------------------------------------


class Replica(Struct):
    """A broker that holds a partition."""

    broker: int
    leader: bool
    in_sync: bool


class PartitionMetadata(Struct):
    """A partition and the brokers that hold it."""

    partition: int
    leader: int
    replicas: list[Replica]

    EXAMPLES: ClassVar[list[Any]] = [_PARTITION]


class TopicMetadata(Struct):
    """A topic with its settings and partitions."""

    name: str
    configs: dict[str, str]
    partitions: list[PartitionMetadata]

    EXAMPLES: ClassVar[list[Any]] = [
        {"name": "orders", "configs": {"retention.ms": "604800000"}, "partitions": [_PARTITION]}
    ]


class Root(Struct):
    """The answer at the root: an empty object."""

    EXAMPLES: ClassVar[list[Any]] = [{}]


class Health(Struct):
    """How long the process has run, and its version, under the names of Karapace."""

    process_uptime_sec: int
    karapace_version: str


class BrokerIds(Struct):
    """The ids of the brokers."""

    brokers: list[int]

    EXAMPLES: ClassVar[list[Any]] = [{"brokers": [1]}]


class PartitionOffsets(Struct):
    """The first offset that is kept, and the next one to be written."""

    beginning_offset: int
    end_offset: int

    EXAMPLES: ClassVar[list[Any]] = [{"beginning_offset": 0, "end_offset": 42}]


# --- records ------------------------------------------------------------------------------------------------


class ProxyHeader(Struct, forbid_unknown_fields=True, gc=False):
    """A header of a record: its name under `name` or `key`, its value in base64."""

    name: str | UnsetType = UNSET
    key: str | UnsetType = UNSET
    value: Annotated[str | None, Meta(description="base64; null or absent is null.")] = None


_Partition = Annotated[
    PartitionNumber | UnsetType | None, Meta(description="Without it the key decides (murmur2).")
]
_Timestamp = Annotated[int | UnsetType | None, Meta(description="Milliseconds since 1970; default now.")]


class ProduceRecord(Struct, forbid_unknown_fields=True, gc=False):
    """A record to be written; a key, a value, or both."""

    key: Annotated[Raw | UnsetType, Meta(description=_EMBEDDED)] = UNSET
    value: Annotated[Raw | UnsetType, Meta(description=_EMBEDDED)] = UNSET
    partition: _Partition = UNSET
    headers: list[ProxyHeader] | UnsetType | None = UNSET
    timestamp: _Timestamp = UNSET
    topic: Annotated[str | None, Meta(description=_IGNORED)] = None
    offset: Annotated[int | None, Meta(description=_IGNORED)] = None


class ProduceRequest(Struct, forbid_unknown_fields=True, gc=False):
    """Records to be written. The schema members belong to formats that need a schema registry."""

    records: list[ProduceRecord]
    key_schema: str | None = None
    key_schema_id: int | None = None
    value_schema: str | None = None
    value_schema_id: int | None = None

    EXAMPLES: ClassVar[list[Any]] = [
        {"records": [{"key": "user-1", "value": {"event": "signed-up"}}, {"key": "user-2", "value": None}]}
    ]


# Requests of the embedded formats in which keys and values are strings. They are decoded as `ProduceRequest`, and
# converted one by one, so that a refusal names the record; these types are for the OpenAPI document.

_Headers = list[ProxyHeader] | UnsetType | None
_Base64 = Annotated[str, Meta(extra_json_schema={"contentEncoding": "base64"})] | UnsetType | None


class BinaryProduceRecord(Struct, forbid_unknown_fields=True):
    """A record to be written, with key and value in base64."""

    key: Annotated[_Base64, Meta(description=_EMBEDDED)] = UNSET
    value: Annotated[_Base64, Meta(description=_EMBEDDED)] = UNSET
    partition: _Partition = UNSET
    headers: _Headers = UNSET
    timestamp: _Timestamp = UNSET
    topic: Annotated[str | None, Meta(description=_IGNORED)] = None
    offset: Annotated[int | None, Meta(description=_IGNORED)] = None


class TextProduceRecord(Struct, forbid_unknown_fields=True):
    """A record to be written, with key and value as text."""

    key: Annotated[str | UnsetType | None, Meta(description=_EMBEDDED)] = UNSET
    value: Annotated[str | UnsetType | None, Meta(description=_EMBEDDED)] = UNSET
    partition: _Partition = UNSET
    headers: _Headers = UNSET
    timestamp: _Timestamp = UNSET
    topic: Annotated[str | None, Meta(description=_IGNORED)] = None
    offset: Annotated[int | None, Meta(description=_IGNORED)] = None


class BinaryProduceRequest(Struct, forbid_unknown_fields=True):
    """Records to be written, with keys and values in base64."""

    records: list[BinaryProduceRecord]
    key_schema: str | None = None
    key_schema_id: int | None = None
    value_schema: str | None = None
    value_schema_id: int | None = None

    EXAMPLES: ClassVar[list[Any]] = [{"records": [{"key": "dXNlci0x", "value": "AAEC"}]}]


class TextProduceRequest(Struct, forbid_unknown_fields=True):
    """Records to be written, with keys and values as text."""

    records: list[TextProduceRecord]
    key_schema: str | None = None
    key_schema_id: int | None = None
    value_schema: str | None = None
    value_schema_id: int | None = None

    EXAMPLES: ClassVar[list[Any]] = [{"records": [{"key": "user-1", "value": "signed up"}]}]


class PartitionOffset(Struct, gc=False):
    """Where one record is now, or why it was refused."""

    partition: int | UnsetType | None
    offset: int | UnsetType | None
    error_code: int | UnsetType | None
    error: str | UnsetType | None


class ProduceResponse(Struct, gc=False):
    """The answer of a write: one entry for each record, in the order of the request."""

    offsets: list[PartitionOffset]
    key_schema_id: int | None = None
    value_schema_id: int | None = None

    EXAMPLES: ClassVar[list[Any]] = [
        {
            "offsets": [{"partition": 0, "offset": 41, "error_code": None, "error": None}],
            "key_schema_id": None,
            "value_schema_id": None,
        }
    ]


class ConsumerRecord(Struct, gc=False):
    """A record as read: key and value in the embedded format, header values in base64."""

    topic: str
    key: Any
    value: Any
    partition: int
    offset: int
    timestamp: Annotated[int | None, Meta(description="Milliseconds since 1970.")]
    headers: list[ProxyHeader] | UnsetType

    EXAMPLES: ClassVar[list[Any]] = [
        {
            "topic": "orders",
            "key": "user-1",
            "value": {"event": "signed-up"},
            "partition": 0,
            "offset": 41,
            "timestamp": 1738324800000,
            "headers": [{"name": "trace", "value": "N2Y="}],
        }
    ]


# --- consumers ----------------------------------------------------------------------------------------------


# Options of Strimzi and Karapace, in addition to Confluent's; and the option names of early clients.
_DOTTED = {
    "isolation_level": "isolation.level",
    "topic_metadata_refresh_interval_ms": "topic.metadata.refresh.interval.ms",
    "response_min_bytes": "responseMinBytes",
    "request_wait_ms": "requestWaitMs",
    "auto_offset_reset": "auto.offset.reset",
    "auto_commit_enable": "auto.commit.enable",
    "fetch_min_bytes": "fetch.min.bytes",
    "consumer_request_timeout_ms": "consumer.request.timeout.ms",
}


class CreateInstance(Struct, forbid_unknown_fields=True, rename=_DOTTED):
    """A new consumer instance; every option may be a string or of its own type."""

    id: str | None = None
    name: str | None = None
    format: str | None = None
    auto_offset_reset: str | None = None
    auto_commit_enable: bool | None = None
    fetch_min_bytes: int | None = None
    consumer_request_timeout_ms: int | None = None
    response_min_bytes: Annotated[int | None, Meta(description="Old name of fetch.min.bytes.")] = None
    request_wait_ms: Annotated[int | None, Meta(description="Old name of consumer.request.timeout.ms.")] = (
        None
    )
    isolation_level: Annotated[
        str | None, Meta(description="read_committed, which is the default, or read_uncommitted.")
    ] = None
    topic_metadata_refresh_interval_ms: Annotated[int | None, Meta(description="Without effect here.")] = None

    EXAMPLES: ClassVar[list[Any]] = [
        {
            "name": "reader-1",
            "format": "json",
            "auto.offset.reset": "earliest",
            "auto.commit.enable": "false",
            "fetch.min.bytes": 1,
            "consumer.request.timeout.ms": 1000,
        }
    ]


class InstanceCreated(Struct):
    """The new instance, and where it is reached."""

    instance_id: str
    base_uri: str

    EXAMPLES: ClassVar[list[Any]] = [
        {"instance_id": "reader-1", "base_uri": "http://127.0.0.1:8082/consumers/billing/instances/reader-1"}
    ]


class Subscribe(Struct, forbid_unknown_fields=True):
    """A subscription by names or by a pattern."""

    topics: list[str] | None = None
    topic_pattern: str | None = None

    EXAMPLES: ClassVar[list[Any]] = [{"topics": ["orders"]}]


class Topics(Struct):
    """The names of topics."""

    topics: list[str]

    EXAMPLES: ClassVar[list[Any]] = [{"topics": ["orders"]}]


class Partition(Struct, forbid_unknown_fields=True):
    """One partition of a topic."""

    topic: str
    partition: PartitionNumber


class Partitions(Struct, forbid_unknown_fields=True):
    """Partitions of topics."""

    partitions: list[Partition]

    EXAMPLES: ClassVar[list[Any]] = [{"partitions": _PLACES}]


class Offset(Struct, forbid_unknown_fields=True):
    """An offset in a partition."""

    topic: str
    partition: PartitionNumber
    offset: OffsetNumber
    metadata: str | None = None


class CommitOffsets(Struct, forbid_unknown_fields=True):
    """Offsets to commit, under either name."""

    offsets: list[Offset] | None = None
    partitions: list[Offset] | None = None

    EXAMPLES: ClassVar[list[Any]] = [{"offsets": _OFFSETS}]


class Committed(Struct):
    """An offset that is committed: that of the next record."""

    topic: str
    partition: int
    offset: int
    metadata: str


class CommittedOffsets(Struct):
    """Committed offsets; partitions without one are left out."""

    offsets: list[Committed]

    EXAMPLES: ClassVar[list[Any]] = [
        {"offsets": [{"topic": "orders", "partition": 0, "offset": 42, "metadata": ""}]}
    ]


class Timestamp(Struct, forbid_unknown_fields=True):
    """A moment in a partition: ISO 8601, or milliseconds since 1970."""

    topic: str
    partition: PartitionNumber
    timestamp: int | str
    metadata: str | None = None


class Seek(Struct, forbid_unknown_fields=True):
    """Where to continue: at offsets, at moments, or both for different partitions."""

    offsets: list[Offset] | None = None
    timestamps: list[Timestamp] | None = None

    EXAMPLES: ClassVar[list[Any]] = [{"offsets": _OFFSETS}]


# --- lists and parameters -------------------------------------------------------------------------------------

TopicNames = Annotated[list[str], Meta(examples=[["orders"]])]
NothingMore = Annotated[list[Any], Meta(max_length=0, examples=[[]], extra_json_schema={"items": {}})]
MaxBytes = Annotated[
    int | UnsetType,
    Meta(
        description=f"Bytes of records at most, up to {_LIMITS.http_max_read_bytes}; one record always comes."
    ),
]


class ReadQuery(Struct):
    """The query of a read of one partition."""

    offset: Annotated[
        int | UnsetType, Meta(description="The first offset wanted; default the first there is.")
    ] = UNSET
    timeout: Annotated[int | UnsetType, Meta(description="Milliseconds to wait for a record; default 0.")] = (
        UNSET
    )
    max_bytes: MaxBytes = UNSET


class PollQuery(Struct):
    """The query of a read of an instance."""

    timeout: Annotated[int | UnsetType, Meta(description="Milliseconds to wait; default the instance's.")] = (
        UNSET
    )
    max_bytes: MaxBytes = UNSET


class OffsetsQuery(Struct):
    """The query for committed offsets."""

    topic: Annotated[str | UnsetType, Meta(description="The topic.")] = UNSET
    partition: Annotated[int | UnsetType, Meta(description="The partition.")] = UNSET
