"""The bodies of v2 in JSON: what comes in, what goes out.

What comes in is read leniently: numbers and switches may be strings, as clients in shell and Java send them.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

PartitionNumber = Annotated[int, Meta(ge=0, le=2**31 - 1)]
OffsetNumber = Annotated[int, Meta(ge=0, le=2**63 - 2)]
_EMBEDDED = "In the embedded format of the media type; null or absent is null."
_REF = "#/components/schemas/V2{name}"
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


class TopicMetadata(Struct):
    """A topic with its settings and partitions."""

    name: str
    configs: dict[str, str]
    partitions: list[PartitionMetadata]


class Root(Struct):
    """What stands at the root: nothing."""


class Health(Struct):
    """How long the process has run, and its version, under the names of Karapace."""

    process_uptime_sec: int
    karapace_version: str


class BrokerIds(Struct):
    """The ids of the brokers."""

    brokers: list[int]


class PartitionOffsets(Struct):
    """The first offset that is kept, and the next one to be written."""

    beginning_offset: int
    end_offset: int


# --- records ------------------------------------------------------------------------------------------------


class ProxyHeader(Struct, forbid_unknown_fields=True, gc=False):
    """A header of a record: its name under `name` or `key`, its value in base64."""

    name: str | UnsetType = UNSET
    key: str | UnsetType = UNSET
    value: Annotated[str | None, Meta(description="base64; null or absent is null.")] = None


class ProduceRecord(Struct, forbid_unknown_fields=True, gc=False):
    """A record to be written; a key, a value, or both."""

    key: Annotated[Raw | UnsetType, Meta(description=_EMBEDDED)] = UNSET
    value: Annotated[Raw | UnsetType, Meta(description=_EMBEDDED)] = UNSET
    partition: Annotated[
        PartitionNumber | UnsetType | None, Meta(description="Without it the key decides (murmur2).")
    ] = UNSET
    headers: list[ProxyHeader] | UnsetType | None = UNSET
    timestamp: Annotated[
        int | UnsetType | None, Meta(description="Milliseconds since 1970; default now.")
    ] = UNSET
    topic: Annotated[str | None, Meta(description=_IGNORED)] = None
    offset: Annotated[int | None, Meta(description=_IGNORED)] = None


class ProduceRequest(Struct, forbid_unknown_fields=True, gc=False):
    """Records to be written. The schema members belong to formats that need a schema registry."""

    records: list[ProduceRecord]
    key_schema: str | None = None
    key_schema_id: int | None = None
    value_schema: str | None = None
    value_schema_id: int | None = None


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


class ConsumerRecord(Struct, gc=False):
    """A record as read: key and value in the embedded format, header values in base64."""

    topic: str
    key: Any
    value: Any
    partition: int
    offset: int
    timestamp: Annotated[int | None, Meta(description="Milliseconds since 1970.")]
    headers: list[ProxyHeader] | UnsetType


# --- consumers ----------------------------------------------------------------------------------------------


# Options that Strimzi and Karapace know beside Confluent's; and the names of old clients.
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
    isolation_level: Annotated[str | None, Meta(description="read_committed or read_uncommitted.")] = None
    topic_metadata_refresh_interval_ms: Annotated[int | None, Meta(description="Without effect here.")] = None


class InstanceCreated(Struct):
    """The new instance, and where it is reached."""

    instance_id: str
    base_uri: str


class Subscribe(Struct, forbid_unknown_fields=True):
    """A subscription by names or by a pattern."""

    topics: list[str] | None = None
    topic_pattern: str | None = None


class Topics(Struct):
    """The names of topics."""

    topics: list[str]


class Partition(Struct, forbid_unknown_fields=True):
    """One partition of a topic."""

    topic: str
    partition: PartitionNumber


class Partitions(Struct, forbid_unknown_fields=True):
    """Partitions of topics."""

    partitions: list[Partition]


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


class Committed(Struct):
    """An offset that is committed: that of the next record."""

    topic: str
    partition: int
    offset: int
    metadata: str


class CommittedOffsets(Struct):
    """Committed offsets; partitions without one are left out."""

    offsets: list[Committed]


class Timestamp(Struct, forbid_unknown_fields=True):
    """A moment in a partition: ISO 8601, or milliseconds since 1970."""

    topic: str
    partition: PartitionNumber
    timestamp: int | str
    metadata: str | None = None


class Seek(Struct, forbid_unknown_fields=True):
    """Where to go on: at offsets, at moments, or both for different partitions."""

    offsets: list[Offset] | None = None
    timestamps: list[Timestamp] | None = None


BODIES = (
    Root, TopicMetadata, BrokerIds, PartitionOffsets, ProduceRequest, ProduceResponse, ConsumerRecord, ErrorMessage,
    PartitionMetadata, CreateInstance, InstanceCreated, Subscribe, Topics,
    Partitions, CommitOffsets, CommittedOffsets, Seek,
)  # fmt: skip


def schemas() -> dict[str, Any]:
    """The JSON schemas of these bodies by name, for the OpenAPI document; `V2` sets them apart."""
    _, components = msgspec.json.schema_components(BODIES, ref_template=_REF)
    components |= _of_format("Binary", {"type": ["string", "null"], "contentEncoding": "base64"}, components)
    components |= _of_format("Text", {"type": ["string", "null"]}, components)
    # The title as well: generators name their types by it, and some names are those of the native API.
    return {f"V2{name}": {**schema, "title": f"V2{name}"} for name, schema in components.items()}


def _of_format(name: str, embedded: dict[str, Any], components: dict[str, Any]) -> dict[str, Any]:
    """The records and the request of an embedded format in which keys and values are strings."""
    record, request = (
        {**components[which], "properties": dict(components[which]["properties"])}
        for which in ("ProduceRecord", "ProduceRequest")
    )
    for member in ("key", "value"):
        text = record["properties"][member]["description"]
        record["properties"][member] = {**embedded, "description": text}
    items = {"$ref": _REF.format(name=f"{name}ProduceRecord")}
    request["properties"]["records"] = {"type": "array", "items": items}
    return {f"{name}ProduceRecord": record, f"{name}ProduceRequest": request}
