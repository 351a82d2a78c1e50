"""The shapes of the control routes: topics, cluster, pages. Records have their own, in `record_schemas`."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictFloat, StrictInt, StrictStr
from typing_extensions import TypeAliasType

# A setting may be written as JSON has it; the broker keeps text.
ConfigValue = StrictStr | StrictBool | StrictInt | StrictFloat | None
# By name; a type of its own, so that generated clients have one.
ConfigValues = TypeAliasType("ConfigValues", dict[str, ConfigValue])
# Offsets and times of Kafka are signed 64-bit numbers, partitions signed 32-bit ones.
Offset = Annotated[StrictInt, Field(ge=0, lt=2**63)]
Partition = Annotated[StrictInt, Field(ge=0, lt=2**31)]
PartitionCount = Annotated[StrictInt, Field(ge=1, lt=2**31)]


class Shape(BaseModel):
    """What all bodies have in common: an unknown member is refused, not ignored."""

    model_config = ConfigDict(extra="forbid")


# --- problems -----------------------------------------------------------------------------------------------


class ProblemError(BaseModel):
    """One thing that was wrong, and where."""

    model_config = ConfigDict(extra="allow")

    detail: str
    pointer: str | None = Field(
        None, description="A JSON pointer into the body, such as `#/records/3/value`."
    )
    parameter: str | None = Field(default=None, description="The query or path parameter.")
    record: int | None = Field(default=None, description="The index of the record.")
    field: str | None = Field(default=None, description="The member of the record, or of the body.")


class ProblemDocument(BaseModel):
    """A problem document (RFC 9457). It may have more members, such as `limit`, or the bounds of a partition."""

    model_config = ConfigDict(extra="allow", json_schema_extra={"examples": [
        {
            "type": "/problems/unknown-topic-or-partition",
            "title": "Unknown topic or partition",
            "status": 404,
            "detail": "There is no topic named 'orders'.",
            "instance": "/api/v1/topics/orders",
            "kafka_error": "UNKNOWN_TOPIC_OR_PARTITION",
            "kafka_error_code": 3,
            "retriable": True,
        }
    ]})  # fmt: skip

    type: str = Field(description="A page that explains this kind of problem, relative to this server.")
    title: str
    status: int
    detail: str
    instance: str
    kafka_error: str | None = None
    kafka_error_code: int | None = None
    retriable: bool
    errors: list[ProblemError] = []


# --- topics -------------------------------------------------------------------------------------------------


class TopicToCreate(Shape):
    """The definition of a topic. A missing member is the broker's default for a new topic, and is not compared."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [
        {"partitions": 3, "configs": {"retention.ms": 3600000}}
    ]})  # fmt: skip

    partitions: PartitionCount | None = None
    replication_factor: Annotated[StrictInt, Field(ge=-1, le=32767)] | None = None
    configs: ConfigValues | None = Field(default=None, description="Topic settings; null is the default.")
    validate_only: StrictBool = Field(default=False, description="Check everything and create nothing.")


class TopicChange(Shape):
    """A merge patch: only the members here change; a setting of null gets its default again."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [
        {"partitions": 6, "configs": {"retention.ms": None}}
    ]})  # fmt: skip

    partitions: PartitionCount | None = None
    configs: ConfigValues | None = None


class TopicSummary(BaseModel):
    """A topic as a list shows it."""

    name: str
    topic_id: str
    partitions: int
    internal: bool
    created: str | None
    configs: dict[str, str] = Field(description="The settings that this topic sets itself.")
    version: int = Field(description="Rises with each change; the ETag is made of it.")


class TopicPage(BaseModel):
    """One page of topics, by name."""

    items: list[TopicSummary]
    next_page_token: str | None = Field(description="Ask for the next page with it; null on the last page.")


class PartitionDetail(BaseModel):
    """One partition: its first offset, where reads end, its high watermark, its size on disk (null: not known).

    `latest` is the last stable offset: reads end there, unless they are read_uncommitted. It may be below the high
    watermark while a transaction is open.
    """

    partition: int
    earliest: int
    latest: int
    high_watermark: int
    size_bytes: int | None


class ConfigDetail(BaseModel):
    """One setting in force, and the source of its value."""

    value: str
    source: str = Field(
        description="Whose setting it is.", json_schema_extra={"enum": ["topic", "broker", "default"]}
    )
    type: str
    doc: str


class TopicDetail(TopicSummary):
    """A topic with its partitions and all settings in force."""

    partition_details: list[PartitionDetail]
    effective_configs: dict[str, ConfigDetail]


class PartitionOffset(BaseModel):
    """The answer for one partition; null where no record is that young."""

    partition: int
    offset: int | None
    timestamp: str | None
    timestamp_ms: int | None


class TopicOffsets(BaseModel):
    """One offset for each partition."""

    topic: str
    at: str
    partitions: list[PartitionOffset]


class PartitionToTruncate(Shape):
    """Delete the records of this partition below an offset; null means all there are now."""

    partition: Partition
    before_offset: Offset | None = None


class Truncation(Shape):
    """The records to delete."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [
        {"partitions": [{"partition": 0, "before_offset": 42}], "dry_run": True}
    ]})  # fmt: skip

    partitions: list[PartitionToTruncate] = Field(min_length=1, max_length=10_000)
    dry_run: StrictBool = Field(default=False, description="Say what would be deleted, and delete nothing.")


class PartitionTruncated(BaseModel):
    """What became of one partition. `deleted` counts offsets, which may be more than records."""

    partition: int
    earliest_before: int
    earliest: int
    latest: int
    deleted: int


class Truncated(BaseModel):
    """What was deleted, or would be."""

    topic: str
    dry_run: bool
    partitions: list[PartitionTruncated]


# --- cluster ------------------------------------------------------------------------------------------------


class Overview(BaseModel):
    """Where a client begins: versions, limits, links."""

    name: str
    version: str
    cluster_id: str
    capabilities: list[str] = Field(
        description="What this server can do. Calls that need something else are answered with 501, or with null."
    )
    limits: dict[str, int]
    links: dict[str, str]


class BrokerDetail(BaseModel):
    """One broker and its address for Kafka clients (null when it has no Kafka listener)."""

    broker_id: int
    kafka: str | None = Field(description="`host:port` for the `bootstrap.servers` of a Kafka client.")
    listeners: list[str]


class Brokers(BaseModel):
    """The brokers of the cluster: one."""

    items: list[BrokerDetail]


class Cluster(BaseModel):
    """The cluster and its brokers."""

    cluster_id: str
    controller_id: int
    brokers: list[BrokerDetail]
    topics: int
    partitions: int
    frozen: bool = Field(
        description="Whether writes are refused, because the records move to another cluster."
    )


class Freezing(BaseModel):
    """Whether writes are refused, and since when."""

    frozen: bool
    since: str | None = Field(description="RFC 3339, in UTC; null if writes are taken.")


class ProtocolApi(BaseModel):
    """One API of the Kafka protocol. Versions are in reverse order of preference: the best is the last."""

    api_key: int
    api_name: str
    versions: list[int]
    deprecated_versions: list[int] = Field(description="Served as well, but by Kafka 4 no more.")


class ProtocolVersions(BaseModel):
    """Which APIs of the Kafka protocol this server speaks."""

    apis: list[ProtocolApi]
