"""DeleteRecords (key 21): records to drop before an offset; −1 is the high watermark (KIP-107).

Versions 0–2, flexible from 2.
"""

from __future__ import annotations

from typing import Annotated

from core.protocol.schema import F, Int16, Int32, Int64, Message


class DeleteRecordsPartition(Message):
    """An entry of `DeleteRecordsTopic.partitions`."""

    partition_index: Annotated[Int32, F("0+")] = 0
    offset: Annotated[Int64, F("0+")] = 0


class DeleteRecordsTopic(Message):
    """An entry of `DeleteRecordsRequest.topics`."""

    name: Annotated[str, F("0+")] = ""
    partitions: Annotated[list[DeleteRecordsPartition], F("0+")] = []


class DeleteRecordsRequest(Message):
    """DeleteRecords request."""

    topics: Annotated[list[DeleteRecordsTopic], F("0+")] = []
    timeout_ms: Annotated[Int32, F("0+")] = 0


class DeleteRecordsPartitionResult(Message):
    """An entry of `DeleteRecordsTopicResult.partitions`."""

    partition_index: Annotated[Int32, F("0+")] = 0
    # The new first offset.
    low_watermark: Annotated[Int64, F("0+")] = 0
    error_code: Annotated[Int16, F("0+")] = 0


class DeleteRecordsTopicResult(Message):
    """An entry of `DeleteRecordsResponse.topics`."""

    name: Annotated[str, F("0+")] = ""
    partitions: Annotated[list[DeleteRecordsPartitionResult], F("0+")] = []


class DeleteRecordsResponse(Message):
    """DeleteRecords response."""

    throttle_time_ms: Annotated[Int32, F("0+")] = 0
    topics: Annotated[list[DeleteRecordsTopicResult], F("0+")] = []
