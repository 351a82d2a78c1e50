"""ShareFetch (key 78): records that a member of a share group acquires, and acknowledgements on the way (KIP-932).

Versions 1–2, flexible from 0.

Share session epoch 0 opens a session, −1 closes it. Kafka 4.1 does not serve version 0. Version 2 has a mode of
acquisition (KIP-1206) and renewals (KIP-1222).
"""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from core.protocol.messages.share_acknowledge import AcknowledgementBatch, LeaderIdAndEpoch, NodeEndpoint
from core.protocol.primitives import NIL
from core.protocol.schema import F, Int8, Int16, Int32, Int64, Message, SentRecords


class FetchPartition(Message):
    """An entry of `FetchTopic.partitions`."""

    partition_index: Annotated[Int32, F("1+")] = 0
    acknowledgement_batches: Annotated[list[AcknowledgementBatch], F("1+")] = []


class FetchTopic(Message):
    """An entry of `ShareFetchRequest.topics`."""

    topic_id: Annotated[UUID, F("1+")] = NIL
    partitions: Annotated[list[FetchPartition], F("1+")] = []


class ForgottenTopic(Message):
    """An entry of `ShareFetchRequest.forgotten_topics_data`."""

    topic_id: Annotated[UUID, F("1+")] = NIL
    partitions: Annotated[list[Int32], F("1+")] = []


class ShareFetchRequest(Message):
    """ShareFetch request."""

    group_id: Annotated[str | None, F("1+", nullable="1+")] = None
    member_id: Annotated[str | None, F("1+", nullable="1+")] = ""
    share_session_epoch: Annotated[Int32, F("1+")] = 0
    max_wait_ms: Annotated[Int32, F("1+")] = 0
    min_bytes: Annotated[Int32, F("1+")] = 0
    max_bytes: Annotated[Int32, F("1+")] = 0x7FFF_FFFF
    # May be exceeded for the end of a batch.
    max_records: Annotated[Int32, F("1+")] = 0
    # How many records an acquired batch should have.
    batch_size: Annotated[Int32, F("1+")] = 0
    # 0 whole batches, 1 never more than `max_records`.
    share_acquire_mode: Annotated[Int8, F("2+")] = 0
    # Whether any of the types of the acknowledgements is 4. Nothing is fetched then.
    is_renew_ack: Annotated[bool, F("2+")] = False
    topics: Annotated[list[FetchTopic], F("1+")] = []
    forgotten_topics_data: Annotated[list[ForgottenTopic], F("1+")] = []


class AcquiredRecords(Message):
    """An entry of `PartitionData.acquired_records`."""

    first_offset: Annotated[Int64, F("1+")] = 0
    # Inclusive.
    last_offset: Annotated[Int64, F("1+")] = 0
    # 1 at the first delivery.
    delivery_count: Annotated[Int16, F("1+")] = 0


class PartitionData(Message):
    """An entry of `ShareFetchableTopicResponse.partitions`."""

    partition_index: Annotated[Int32, F("1+")] = 0
    error_code: Annotated[Int16, F("1+")] = 0
    error_message: Annotated[str | None, F("1+", nullable="1+")] = None
    # Of the acknowledgements in the request.
    acknowledge_error_code: Annotated[Int16, F("1+")] = 0
    acknowledge_error_message: Annotated[str | None, F("1+", nullable="1+")] = None
    current_leader: Annotated[LeaderIdAndEpoch, F("1+")] = LeaderIdAndEpoch()
    records: Annotated[SentRecords | None, F("1+", nullable="1+")] = None
    acquired_records: Annotated[list[AcquiredRecords], F("1+")] = []


class ShareFetchableTopicResponse(Message):
    """An entry of `ShareFetchResponse.responses`."""

    topic_id: Annotated[UUID, F("1+")] = NIL
    partitions: Annotated[list[PartitionData], F("1+")] = []


class ShareFetchResponse(Message):
    """ShareFetch response."""

    throttle_time_ms: Annotated[Int32, F("1+")] = 0
    error_code: Annotated[Int16, F("1+")] = 0
    error_message: Annotated[str | None, F("1+", nullable="1+")] = None
    # How long the acquired records are locked.
    acquisition_lock_timeout_ms: Annotated[Int32, F("1+")] = 0
    responses: Annotated[list[ShareFetchableTopicResponse], F("1+")] = []
    node_endpoints: Annotated[list[NodeEndpoint], F("1+")] = []
