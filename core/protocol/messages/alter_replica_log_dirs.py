"""AlterReplicaLogDirs (key 34): replicas to move to another directory of the same broker (KIP-113).

Versions 0–2, flexible from 2.
"""

from __future__ import annotations

from typing import Annotated

from core.protocol.schema import F, Int16, Int32, Message


class AlterReplicaLogDirTopic(Message):
    """An entry of `AlterReplicaLogDir.topics`."""

    name: Annotated[str, F("0+")] = ""
    partitions: Annotated[list[Int32], F("0+")] = []


class AlterReplicaLogDir(Message):
    """An entry of `AlterReplicaLogDirsRequest.dirs`."""

    path: Annotated[str, F("0+")] = ""
    topics: Annotated[list[AlterReplicaLogDirTopic], F("0+")] = []


class AlterReplicaLogDirsRequest(Message):
    """AlterReplicaLogDirs request."""

    dirs: Annotated[list[AlterReplicaLogDir], F("0+")] = []


class AlterReplicaLogDirPartitionResult(Message):
    """An entry of `AlterReplicaLogDirTopicResult.partitions`."""

    partition_index: Annotated[Int32, F("0+")] = 0
    error_code: Annotated[Int16, F("0+")] = 0


class AlterReplicaLogDirTopicResult(Message):
    """An entry of `AlterReplicaLogDirsResponse.results`."""

    topic_name: Annotated[str, F("0+")] = ""
    partitions: Annotated[list[AlterReplicaLogDirPartitionResult], F("0+")] = []


class AlterReplicaLogDirsResponse(Message):
    """AlterReplicaLogDirs response."""

    throttle_time_ms: Annotated[Int32, F("0+")] = 0
    results: Annotated[list[AlterReplicaLogDirTopicResult], F("0+")] = []
