"""DescribeAcls (key 29): access rules that match a filter (KIP-140).

Versions 0–3, flexible from 2.

Version 1 has prefixed patterns (KIP-290).
"""

from __future__ import annotations

from typing import Annotated

from core.protocol.schema import F, Int8, Int16, Int32, Message


class DescribeAclsRequest(Message):
    """DescribeAcls request."""

    resource_type_filter: Annotated[Int8, F("0+")] = 0
    resource_name_filter: Annotated[str | None, F("0+", nullable="0+")] = ""
    pattern_type_filter: Annotated[Int8, F("1+")] = 3
    principal_filter: Annotated[str | None, F("0+", nullable="0+")] = ""
    host_filter: Annotated[str | None, F("0+", nullable="0+")] = ""
    operation: Annotated[Int8, F("0+")] = 0
    permission_type: Annotated[Int8, F("0+")] = 0


class AclDescription(Message):
    """An entry of `DescribeAclsResource.acls`."""

    principal: Annotated[str, F("0+")] = ""
    host: Annotated[str, F("0+")] = ""
    operation: Annotated[Int8, F("0+")] = 0
    permission_type: Annotated[Int8, F("0+")] = 0


class DescribeAclsResource(Message):
    """An entry of `DescribeAclsResponse.resources`."""

    resource_type: Annotated[Int8, F("0+")] = 0
    resource_name: Annotated[str, F("0+")] = ""
    pattern_type: Annotated[Int8, F("1+")] = 3
    acls: Annotated[list[AclDescription], F("0+")] = []


class DescribeAclsResponse(Message):
    """DescribeAcls response."""

    throttle_time_ms: Annotated[Int32, F("0+")] = 0
    error_code: Annotated[Int16, F("0+")] = 0
    error_message: Annotated[str | None, F("0+", nullable="0+")] = None
    resources: Annotated[list[DescribeAclsResource], F("0+")] = []
