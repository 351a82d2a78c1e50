"""DescribeCluster (key 60): cluster id, controller and brokers (KIP-700).

Versions 0–2, flexible from 0.

Version 1 tells brokers from controllers (KIP-919), 2 shows fenced ones (KIP-1073).
"""

from __future__ import annotations

from typing import Annotated

from core.protocol.schema import F, Int8, Int16, Int32, Message


class DescribeClusterRequest(Message):
    """DescribeCluster request."""

    include_cluster_authorized_operations: Annotated[bool, F("0+")] = False
    endpoint_type: Annotated[Int8, F("1+")] = 1
    include_fenced_brokers: Annotated[bool, F("2+")] = False


class DescribeClusterBroker(Message):
    """An entry of `DescribeClusterResponse.brokers`."""

    broker_id: Annotated[Int32, F("0+")] = 0
    host: Annotated[str, F("0+")] = ""
    port: Annotated[Int32, F("0+")] = 0
    rack: Annotated[str | None, F("0+", nullable="0+")] = None
    is_fenced: Annotated[bool, F("2+")] = False


class DescribeClusterResponse(Message):
    """DescribeCluster response."""

    throttle_time_ms: Annotated[Int32, F("0+")] = 0
    error_code: Annotated[Int16, F("0+")] = 0
    error_message: Annotated[str | None, F("0+", nullable="0+")] = None
    endpoint_type: Annotated[Int8, F("1+")] = 1
    cluster_id: Annotated[str, F("0+")] = ""
    controller_id: Annotated[Int32, F("0+")] = -1
    brokers: Annotated[list[DescribeClusterBroker], F("0+")] = []
    cluster_authorized_operations: Annotated[Int32, F("0+")] = -0x8000_0000
