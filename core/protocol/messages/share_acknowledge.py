"""ShareAcknowledge (key 79): acknowledgements of acquired records (KIP-932).

Versions 1–2, flexible from 0.

Types are 0 gap, 1 accept, 2 release, 3 reject; since version 2 also 4 renew (KIP-1222). ShareFetch has the same
acknowledgements, leaders and endpoints, and imports their classes from here.
"""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from core.protocol.primitives import NIL
from core.protocol.schema import F, Int8, Int16, Int32, Int64, Message, Value


class AcknowledgementBatch(Message):
    """An entry of `acknowledgement_batches`."""

    first_offset: Annotated[Int64, F("1+")] = 0
    # Inclusive.
    last_offset: Annotated[Int64, F("1+")] = 0
    # One for each offset, or one for all: 0 gap, 1 accept, 2 release, 3 reject, 4 renew.
    acknowledge_types: Annotated[list[Int8], F("1+")] = []


class AcknowledgePartition(Message):
    """An entry of `AcknowledgeTopic.partitions`."""

    partition_index: Annotated[Int32, F("1+")] = 0
    acknowledgement_batches: Annotated[list[AcknowledgementBatch], F("1+")] = []


class AcknowledgeTopic(Message):
    """An entry of `ShareAcknowledgeRequest.topics`."""

    topic_id: Annotated[UUID, F("1+")] = NIL
    partitions: Annotated[list[AcknowledgePartition], F("1+")] = []


class ShareAcknowledgeRequest(Message):
    """ShareAcknowledge request."""

    group_id: Annotated[str | None, F("1+", nullable="1+")] = None
    member_id: Annotated[str | None, F("1+", nullable="1+")] = ""
    share_session_epoch: Annotated[Int32, F("1+")] = 0
    # Whether any of the types is 4.
    is_renew_ack: Annotated[bool, F("2+")] = False
    topics: Annotated[list[AcknowledgeTopic], F("1+")] = []


class LeaderIdAndEpoch(Value, frozen=True):
    """The field `current_leader`."""

    leader_id: Annotated[Int32, F("1+")] = 0
    leader_epoch: Annotated[Int32, F("1+")] = 0


class PartitionData(Message):
    """An entry of `ShareAcknowledgeTopicResponse.partitions`."""

    partition_index: Annotated[Int32, F("1+")] = 0
    error_code: Annotated[Int16, F("1+")] = 0
    error_message: Annotated[str | None, F("1+", nullable="1+")] = None
    current_leader: Annotated[LeaderIdAndEpoch, F("1+")] = LeaderIdAndEpoch()


class ShareAcknowledgeTopicResponse(Message):
    """An entry of `ShareAcknowledgeResponse.responses`."""

    topic_id: Annotated[UUID, F("1+")] = NIL
    partitions: Annotated[list[PartitionData], F("1+")] = []


class NodeEndpoint(Message):
    """An entry of `node_endpoints`."""

    node_id: Annotated[Int32, F("1+")] = 0
    host: Annotated[str, F("1+")] = ""
    port: Annotated[Int32, F("1+")] = 0
    rack: Annotated[str | None, F("1+", nullable="1+")] = None


class ShareAcknowledgeResponse(Message):
    """ShareAcknowledge response."""

    throttle_time_ms: Annotated[Int32, F("1+")] = 0
    error_code: Annotated[Int16, F("1+")] = 0
    error_message: Annotated[str | None, F("1+", nullable="1+")] = None
    # How long renewed records are locked.
    acquisition_lock_timeout_ms: Annotated[Int32, F("2+")] = 0
    responses: Annotated[list[ShareAcknowledgeTopicResponse], F("1+")] = []
    node_endpoints: Annotated[list[NodeEndpoint], F("1+")] = []
