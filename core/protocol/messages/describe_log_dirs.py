"""DescribeLogDirs (key 35): directories of a broker and the size of what lies in them (KIP-113).

Versions 0–5, flexible from 2.

Version 3 has an error of its own, 4 total and usable bytes (KIP-827), 5 tells a cordoned directory
(KIP-1066).
"""

from __future__ import annotations

from typing import Annotated

from core.protocol.schema import F, Int16, Int32, Int64, Message


class DescribableLogDirTopic(Message):
    """An entry of `DescribeLogDirsRequest.topics`."""

    topic: Annotated[str, F("0+")] = ""
    partitions: Annotated[list[Int32], F("0+")] = []


class DescribeLogDirsRequest(Message):
    """DescribeLogDirs request."""

    # Null asks for all.
    topics: Annotated[list[DescribableLogDirTopic] | None, F("0+", nullable="0+")] = []


class DescribeLogDirsPartition(Message):
    """An entry of `DescribeLogDirsTopic.partitions`."""

    partition_index: Annotated[Int32, F("0+")] = 0
    partition_size: Annotated[Int64, F("0+")] = 0
    # Offsets that are missing up to the log end offset, or the high watermark, of the current replica.
    offset_lag: Annotated[Int64, F("0+")] = 0
    is_future_key: Annotated[bool, F("0+")] = False


class DescribeLogDirsTopic(Message):
    """An entry of `DescribeLogDirsResult.topics`."""

    name: Annotated[str, F("0+")] = ""
    partitions: Annotated[list[DescribeLogDirsPartition], F("0+")] = []


class DescribeLogDirsResult(Message):
    """An entry of `DescribeLogDirsResponse.results`."""

    error_code: Annotated[Int16, F("0+")] = 0
    log_dir: Annotated[str, F("0+")] = ""
    topics: Annotated[list[DescribeLogDirsTopic], F("0+")] = []
    # −1 where it is not known.
    total_bytes: Annotated[Int64, F("4+")] = -1
    usable_bytes: Annotated[Int64, F("4+")] = -1
    is_cordoned: Annotated[bool, F("5+")] = False


class DescribeLogDirsResponse(Message):
    """DescribeLogDirs response."""

    throttle_time_ms: Annotated[Int32, F("0+")] = 0
    error_code: Annotated[Int16, F("3+")] = 0
    results: Annotated[list[DescribeLogDirsResult], F("0+")] = []
