"""ElectLeaders (key 43): elect the preferred leader of partitions, or an unclean one (KIP-460).

Versions 0–2, flexible from 2.
"""

from __future__ import annotations

from typing import Annotated

from core.protocol.schema import F, Int8, Int16, Int32, Message


class TopicPartitions(Message):
    """An entry of `ElectLeadersRequest.topic_partitions`."""

    topic: Annotated[str, F("0+")] = ""
    partitions: Annotated[list[Int32], F("0+")] = []


class ElectLeadersRequest(Message):
    """ElectLeaders request."""

    # 0 preferred, 1 unclean.
    election_type: Annotated[Int8, F("1+")] = 0
    # Null means all.
    topic_partitions: Annotated[list[TopicPartitions] | None, F("0+", nullable="0+")] = []
    timeout_ms: Annotated[Int32, F("0+")] = 60000


class PartitionResult(Message):
    """An entry of `ReplicaElectionResult.partition_result`."""

    partition_id: Annotated[Int32, F("0+")] = 0
    error_code: Annotated[Int16, F("0+")] = 0
    error_message: Annotated[str | None, F("0+", nullable="0+")] = None


class ReplicaElectionResult(Message):
    """An entry of `ElectLeadersResponse.replica_election_results`."""

    topic: Annotated[str, F("0+")] = ""
    partition_result: Annotated[list[PartitionResult], F("0+")] = []


class ElectLeadersResponse(Message):
    """ElectLeaders response."""

    throttle_time_ms: Annotated[Int32, F("0+")] = 0
    error_code: Annotated[Int16, F("1+")] = 0
    replica_election_results: Annotated[list[ReplicaElectionResult], F("0+")] = []
