"""WriteTxnMarkers (key 27): the coordinator has markers written into partitions (KIP-98); broker to broker.

Versions 0–2, flexible from 1.

Version 2 tells the version of the transaction (KIP-1228).
"""

from __future__ import annotations

from typing import Annotated

from core.protocol.schema import F, Int8, Int16, Int32, Int64, Message


class WritableTxnMarkerTopic(Message):
    """An entry of `WritableTxnMarker.topics`."""

    name: Annotated[str, F("0+")] = ""
    partition_indexes: Annotated[list[Int32], F("0+")] = []


class WritableTxnMarker(Message):
    """An entry of `WriteTxnMarkersRequest.markers`."""

    producer_id: Annotated[Int64, F("0+")] = 0
    producer_epoch: Annotated[Int16, F("0+")] = 0
    # True commits.
    transaction_result: Annotated[bool, F("0+")] = False
    topics: Annotated[list[WritableTxnMarkerTopic], F("0+")] = []
    coordinator_epoch: Annotated[Int32, F("0+")] = 0
    transaction_version: Annotated[Int8, F("2+")] = 0


class WriteTxnMarkersRequest(Message):
    """WriteTxnMarkers request."""

    markers: Annotated[list[WritableTxnMarker], F("0+")] = []


class WritableTxnMarkerPartitionResult(Message):
    """An entry of `WritableTxnMarkerTopicResult.partitions`."""

    partition_index: Annotated[Int32, F("0+")] = 0
    error_code: Annotated[Int16, F("0+")] = 0


class WritableTxnMarkerTopicResult(Message):
    """An entry of `WritableTxnMarkerResult.topics`."""

    name: Annotated[str, F("0+")] = ""
    partitions: Annotated[list[WritableTxnMarkerPartitionResult], F("0+")] = []


class WritableTxnMarkerResult(Message):
    """An entry of `WriteTxnMarkersResponse.markers`."""

    producer_id: Annotated[Int64, F("0+")] = 0
    topics: Annotated[list[WritableTxnMarkerTopicResult], F("0+")] = []


class WriteTxnMarkersResponse(Message):
    """WriteTxnMarkers response."""

    markers: Annotated[list[WritableTxnMarkerResult], F("0+")] = []
