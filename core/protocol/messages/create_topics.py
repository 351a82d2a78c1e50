"""CreateTopics (key 19): topics to create.

Versions 0–7, flexible from 5.

Version 4 may leave partitions and replication to the broker (−1, KIP-464), 5 answers the configs
(KIP-525), 7 the topic id (KIP-516).
"""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from core.protocol.primitives import NIL
from core.protocol.schema import F, Int8, Int16, Int32, Message


class CreatableReplicaAssignment(Message):
    """An entry of `CreatableTopic.assignments`."""

    partition_index: Annotated[Int32, F("0+")] = 0
    broker_ids: Annotated[list[Int32], F("0+")] = []


class CreatableTopicConfig(Message):
    """An entry of `CreatableTopic.configs`."""

    name: Annotated[str, F("0+")] = ""
    value: Annotated[str | None, F("0+", nullable="0+")] = ""


class CreatableTopic(Message):
    """An entry of `CreateTopicsRequest.topics`."""

    name: Annotated[str, F("0+")] = ""
    # −1 where assignments are given, or for the broker's default.
    num_partitions: Annotated[Int32, F("0+")] = 0
    # −1 likewise.
    replication_factor: Annotated[Int16, F("0+")] = 0
    assignments: Annotated[list[CreatableReplicaAssignment], F("0+")] = []
    configs: Annotated[list[CreatableTopicConfig], F("0+")] = []


class CreateTopicsRequest(Message):
    """CreateTopics request."""

    topics: Annotated[list[CreatableTopic], F("0+")] = []
    timeout_ms: Annotated[Int32, F("0+")] = 60000
    validate_only: Annotated[bool, F("1+")] = False


class CreatableTopicConfigs(Message):
    """An entry of `CreatableTopicResult.configs`."""

    name: Annotated[str, F("5+")] = ""
    value: Annotated[str | None, F("5+", nullable="5+")] = ""
    read_only: Annotated[bool, F("5+")] = False
    config_source: Annotated[Int8, F("5+")] = -1
    is_sensitive: Annotated[bool, F("5+")] = False


class CreatableTopicResult(Message):
    """An entry of `CreateTopicsResponse.topics`."""

    name: Annotated[str, F("0+")] = ""
    topic_id: Annotated[UUID, F("7+")] = NIL
    error_code: Annotated[Int16, F("0+")] = 0
    error_message: Annotated[str | None, F("1+", nullable="0+")] = None
    topic_config_error_code: Annotated[Int16, F("5+", tag=0)] = 0
    # −1 where the client may not see it, like the two below.
    num_partitions: Annotated[Int32, F("5+")] = -1
    replication_factor: Annotated[Int16, F("5+")] = -1
    configs: Annotated[list[CreatableTopicConfigs] | None, F("5+", nullable="5+")] = []


class CreateTopicsResponse(Message):
    """CreateTopics response."""

    throttle_time_ms: Annotated[Int32, F("2+")] = 0
    topics: Annotated[list[CreatableTopicResult], F("0+")] = []
