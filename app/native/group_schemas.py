"""The shapes of the group routes: groups, positions, lag, members."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, StrictStr

from app.native.consumer_schemas import ConsumerState
from app.native.schemas import Offset, Partition, Shape

Generation = Annotated[StrictInt, Field(ge=0, lt=2**31)]
Timeout = Annotated[StrictInt, Field(ge=0, lt=2**31)]
Name = Annotated[StrictStr, Field(max_length=1000)]
Base64 = Annotated[StrictStr, Field(description="Bytes in base64.", examples=["AAAAAAABAAR0ZXN0AAAAAA=="])]
GroupState = Annotated[
    str,
    Field(
        json_schema_extra={
            "enum": [
                "Empty",
                "PreparingRebalance",
                "CompletingRebalance",
                "Assigning",
                "Reconciling",
                "Stable",
                "Dead",
            ]
        }
    ),
]
Wait = Annotated[
    StrictInt, Field(ge=0, le=300_000, description="How long to wait before the answer is 202: ask again.")
]


# --- groups -------------------------------------------------------------------------------------------------


class GroupSummary(BaseModel):
    """A group in a listing."""

    group_id: str
    state: GroupState
    type: str = Field(
        description="classic: members agree with JoinGroup and SyncGroup. consumer: the broker assigns (KIP-848). "
        "share: a queue (KIP-932). kafka07-zookeeper: consumers of Kafka 0.7, which agree in ZooKeeper; such a group "
        "is shown only."
    )
    protocol_type: str = Field(description="consumer, connect …; empty for a group without members so far.")


class GroupPage(BaseModel):
    """Some groups; with `next_page_token` there are more."""

    items: list[GroupSummary]
    next_page_token: str | None


class AssignedPartition(BaseModel):
    """A partition of a member."""

    topic: str
    partition: int


class GroupMember(BaseModel):
    """A member. Its topics and partitions are shown while the group is stable."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    topics: list[str] | None = Field(description="What it subscribes to; null when that cannot be read.")
    partitions: list[AssignedPartition]
    metadata: str = Field(
        description="Its metadata for the elected protocol, in base64; empty in a group of type consumer."
    )
    assignment: str = Field(description="Its assignment, in base64; empty in a group of type consumer.")
    kind: Literal["classic", "consumer"] | None = Field(
        default=None, description="The protocol that the member speaks, in a group of type consumer."
    )
    epoch: int | None = Field(
        default=None,
        description="The member's epoch, in a group of type consumer; it follows the group's `assignment_epoch`.",
    )
    pattern: str | None = Field(default=None, description="The RE2 expression of its topics.")
    target: list[AssignedPartition] | None = Field(
        default=None,
        description="What it will own once others have given it up, in a group of type consumer.",
    )


class GroupConsumer(BaseModel):
    """A managed consumer of a group; `…/consumers/{name}` has all of its data."""

    name: str
    state: str = Field(json_schema_extra={"enum": list(get_args(ConsumerState))})
    member_id: str | None = Field(description="The member that it is, while the group has it as one.")
    topics: list[str] | None = Field(description="What it subscribes to by name.")
    pattern: str | None
    partitions: list[AssignedPartition] = Field(description="What it owns.")


class GroupDetail(GroupSummary):
    """A group with its members, and the managed consumers of some of them."""

    generation_id: int = Field(description="The generation; of a group of type consumer the group epoch.")
    leader_id: str | None
    protocol: str | None = Field(description="The protocol that the members have elected, or the assignor.")
    assignment_epoch: int | None = Field(
        default=None, description="The epoch of the target assignment, of a group of type consumer."
    )
    members: list[GroupMember]
    consumers: list[GroupConsumer] = Field(
        default=[], description="Managed consumers; those with partitions of their own choice are no members."
    )


class MemberToTakeOver(Shape):
    """A member, and the partitions of the topic that it owns."""

    member_id: Name
    partitions: list[Partition] = Field(max_length=100_000)


class GroupToTakeOver(Shape):
    """A group as another broker kept it."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [
        {"topic": "orders", "generation_id": 3, "assignor": "range",
         "members": [{"member_id": "c1", "partitions": [0]}]}
    ]})  # fmt: skip

    topic: Name
    generation_id: Generation
    assignor: Annotated[StrictStr, Field(description="range or roundrobin; empty for no choice.")] = ""
    members: list[MemberToTakeOver] = Field(default=[], max_length=10_000)


# --- positions ----------------------------------------------------------------------------------------------


class CommittedPosition(BaseModel):
    """Where a group continues in one partition."""

    topic: str
    partition: int
    next_offset: int
    leader_epoch: int | None
    metadata: str
    committed: str | None = Field(description="When, as an ISO time.")
    committed_ms: int


class BytePosition(BaseModel):
    """The offset of consumers of Kafka 0.7 in one partition of one broker, as ZooKeeper has it."""

    topic: str
    broker_id: int
    partition: int
    byte_offset: int


class GroupPositionList(BaseModel):
    """All committed positions of a group."""

    group_id: str
    offsets: list[CommittedPosition]
    byte_offsets: list[BytePosition] = Field(
        description="With --zookeeper: positions of consumers of Kafka 0.7 with this group id."
    )


class PositionToSet(Shape):
    """A position: the next offset to read."""

    topic: Name
    partition: Partition
    next_offset: Offset
    metadata: StrictStr = ""


class PositionsToSet(Shape):
    """Positions to commit, all or none. A member names itself; without one, the group must be empty."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [
        {"offsets": [{"topic": "orders", "partition": 0, "next_offset": 42}]}
    ]})  # fmt: skip

    offsets: list[PositionToSet] = Field(min_length=1, max_length=100_000)
    member_id: Name = ""
    generation_id: Generation | None = None
    group_instance_id: Name | None = None


class ResetRequest(Shape):
    """Where to go: exactly one of `to`, `time`, `offset`, `shift`."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [
        {"to": "earliest", "dry_run": True}
    ]})  # fmt: skip

    to: Literal["earliest", "latest"] | None = None
    time: StrictStr | StrictInt | None = Field(
        default=None, description="ISO 8601, or milliseconds since 1970."
    )
    offset: Offset | None = None
    shift: Annotated[StrictInt, Field(gt=-(2**63), lt=2**63)] | None = Field(
        default=None, description="The number of offsets to move forward, or back if negative."
    )
    topics: list[Name] | None = Field(
        default=None,
        min_length=1,
        max_length=10_000,
        description="All partitions of these; else every partition that the group has a position in.",
    )
    dry_run: StrictBool = Field(default=False, description="Show what would be, and change nothing.")


class PositionReset(BaseModel):
    """One partition of a reset."""

    topic: str
    partition: int
    before: int | None
    after: int


class ResetResult(BaseModel):
    """What was reset, or would be."""

    group_id: str
    dry_run: bool
    offsets: list[PositionReset]


class PartitionLagDetail(BaseModel):
    """The lag of a group in one partition: the offsets up to the last stable offset, as read_committed reads.

    Null if nothing was committed, or the partition is deleted.
    """

    topic: str
    partition: int
    next_offset: int | None
    log_start_offset: int | None
    high_watermark: int | None
    last_stable_offset: int | None
    lag: int | None
    member_id: str | None


class GroupLag(BaseModel):
    """The lag of a group: the sum over the partitions where it is known, and each of them."""

    group_id: str
    total_lag: int
    partitions: list[PartitionLagDetail]


# --- members ------------------------------------------------------------------------------------------------


class ProtocolOffer(Shape):
    """A protocol that a member supports, with its metadata byte for byte."""

    name: Name
    metadata: Base64


class MemberToJoin(Shape):
    """The joining member: with `topics`, and the broker does the rest, or with `protocols` like a client library."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"topics": ["orders"]}]})

    topics: list[Name] | None = Field(default=None, min_length=1, max_length=10_000)
    assignor: StrictStr | None = Field(
        default=None,
        description="With `topics`: range, roundrobin, sticky or cooperative-sticky to vote for.",
    )
    protocols: list[ProtocolOffer] | None = Field(default=None, min_length=1, max_length=100)
    protocol_type: StrictStr = Field(default="consumer", max_length=249, description="With `protocols`.")
    member_id: Name = Field(default="", description="From the second join on: the id that was given.")
    group_instance_id: Name | None = None
    client_id: Name = "http"
    session_timeout_ms: Timeout = Field(
        default=45_000, description="A member without a heartbeat for this long leaves the group."
    )
    rebalance_timeout_ms: Timeout = Field(
        default=60_000, description="How long the others wait for it in a rebalance."
    )
    wait_ms: Wait = 10_000


class JoinedMemberDetail(BaseModel):
    """A member, as the leader gets it."""

    member_id: str
    group_instance_id: str | None
    topics: list[str] | None
    metadata: str


class MemberJoined(BaseModel):
    """The result of a join. While `joined` is false the rebalance continues: join again with the `member_id`."""

    group_id: str
    member_id: str
    joined: bool
    generation_id: int | None = None
    leader_id: str | None = None
    protocol_type: str | None = None
    protocol: str | None = None
    members: list[JoinedMemberDetail] | None = Field(default=None, description="For the leader alone.")


class AssignmentToBring(Shape):
    """What one member gets: as `partitions`, or byte for byte as `assignment`."""

    member_id: Name
    partitions: list[AssignedPartitionToBring] | None = Field(default=None, max_length=100_000)
    assignment: Base64 | None = None


class AssignedPartitionToBring(Shape):
    """A partition that a member gets."""

    topic: Name
    partition: Partition


class SyncBody(Shape):
    """A member asks for its assignment; a leader that joined with protocols of its own brings all of them."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"generation_id": 1}]})

    generation_id: Generation
    group_instance_id: Name | None = None
    assignments: list[AssignmentToBring] | None = Field(default=None, max_length=100_000)
    wait_ms: Wait = 10_000


class MemberSynced(BaseModel):
    """The member's assignment. While `synced` is false the leader has not brought it: ask again."""

    group_id: str
    member_id: str
    synced: bool
    generation_id: int
    partitions: list[AssignedPartition] = []
    assignment: str | None = Field(default=None, description="The same, byte for byte, in base64.")


class HeartbeatBody(Shape):
    """A member says that it lives."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"generation_id": 1}]})

    generation_id: Generation
    group_instance_id: Name | None = None
