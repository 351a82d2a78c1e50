"""Metadata (key 3): brokers, topics, and the leaders of partitions.

Versions 0–13, flexible from 9.

Version 0 asks for all topics with an empty list, later ones with null. Version 4 may forbid auto-
creation, 5 names offline replicas (KIP-112), 8 authorized operations (KIP-430), 10 and 12 know topic ids
(KIP-516).
"""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from core.protocol.primitives import NIL
from core.protocol.schema import F, Int16, Int32, Message


class MetadataRequestTopic(Message):
    """An entry of `MetadataRequest.topics`."""

    topic_id: Annotated[UUID, F("10+")] = NIL
    name: Annotated[str | None, F("0+", nullable="10+")] = ""


class MetadataRequest(Message):
    """Metadata request."""

    # Null, in version 0 an empty list, asks for all.
    topics: Annotated[list[MetadataRequestTopic] | None, F("0+", nullable="1+")] = []
    allow_auto_topic_creation: Annotated[bool, F("4+")] = True
    include_cluster_authorized_operations: Annotated[bool, F("8-10")] = False
    include_topic_authorized_operations: Annotated[bool, F("8+")] = False


class MetadataResponseBroker(Message):
    """An entry of `MetadataResponse.brokers`."""

    node_id: Annotated[Int32, F("0+")] = 0
    host: Annotated[str, F("0+")] = ""
    port: Annotated[Int32, F("0+")] = 0
    rack: Annotated[str | None, F("1+", nullable="1+")] = None


class MetadataResponsePartition(Message):
    """An entry of `MetadataResponseTopic.partitions`."""

    error_code: Annotated[Int16, F("0+")] = 0
    partition_index: Annotated[Int32, F("0+")] = 0
    # −1 while there is none.
    leader_id: Annotated[Int32, F("0+")] = 0
    leader_epoch: Annotated[Int32, F("7+")] = -1
    replica_nodes: Annotated[list[Int32], F("0+")] = []
    isr_nodes: Annotated[list[Int32], F("0+")] = []
    offline_replicas: Annotated[list[Int32], F("5+")] = []


class MetadataResponseTopic(Message):
    """An entry of `MetadataResponse.topics`."""

    error_code: Annotated[Int16, F("0+")] = 0
    name: Annotated[str | None, F("0+", nullable="12+")] = ""
    topic_id: Annotated[UUID, F("10+")] = NIL
    is_internal: Annotated[bool, F("1+")] = False
    partitions: Annotated[list[MetadataResponsePartition], F("0+")] = []
    # A bit for each operation; −2³¹ where it was not asked for.
    topic_authorized_operations: Annotated[Int32, F("8+")] = -0x8000_0000


class MetadataResponse(Message):
    """Metadata response."""

    throttle_time_ms: Annotated[Int32, F("3+")] = 0
    brokers: Annotated[list[MetadataResponseBroker], F("0+")] = []
    cluster_id: Annotated[str | None, F("2+", nullable="2+")] = None
    # −1 where it is not known.
    controller_id: Annotated[Int32, F("1+")] = -1
    topics: Annotated[list[MetadataResponseTopic], F("0+")] = []
    cluster_authorized_operations: Annotated[Int32, F("8-10")] = -0x8000_0000
    error_code: Annotated[Int16, F("13+")] = 0
