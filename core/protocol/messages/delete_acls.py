"""DeleteAcls (key 31): access rules to drop, by filter (KIP-140).

Versions 0–3, flexible from 2.

Version 1 has prefixed patterns (KIP-290).
"""

from __future__ import annotations

from typing import Annotated

from core.protocol.schema import F, Int8, Int16, Int32, Message


class DeleteAclsFilter(Message):
    """An entry of `DeleteAclsRequest.filters`."""

    resource_type_filter: Annotated[Int8, F("0+")] = 0
    resource_name_filter: Annotated[str | None, F("0+", nullable="0+")] = ""
    pattern_type_filter: Annotated[Int8, F("1+")] = 3
    principal_filter: Annotated[str | None, F("0+", nullable="0+")] = ""
    host_filter: Annotated[str | None, F("0+", nullable="0+")] = ""
    operation: Annotated[Int8, F("0+")] = 0
    permission_type: Annotated[Int8, F("0+")] = 0


class DeleteAclsRequest(Message):
    """DeleteAcls request."""

    filters: Annotated[list[DeleteAclsFilter], F("0+")] = []


class DeleteAclsMatchingAcl(Message):
    """An entry of `DeleteAclsFilterResult.matching_acls`."""

    error_code: Annotated[Int16, F("0+")] = 0
    error_message: Annotated[str | None, F("0+", nullable="0+")] = None
    resource_type: Annotated[Int8, F("0+")] = 0
    resource_name: Annotated[str, F("0+")] = ""
    pattern_type: Annotated[Int8, F("1+")] = 3
    principal: Annotated[str, F("0+")] = ""
    host: Annotated[str, F("0+")] = ""
    operation: Annotated[Int8, F("0+")] = 0
    permission_type: Annotated[Int8, F("0+")] = 0


class DeleteAclsFilterResult(Message):
    """An entry of `DeleteAclsResponse.filter_results`."""

    error_code: Annotated[Int16, F("0+")] = 0
    error_message: Annotated[str | None, F("0+", nullable="0+")] = None
    matching_acls: Annotated[list[DeleteAclsMatchingAcl], F("0+")] = []


class DeleteAclsResponse(Message):
    """DeleteAcls response."""

    throttle_time_ms: Annotated[Int32, F("0+")] = 0
    filter_results: Annotated[list[DeleteAclsFilterResult], F("0+")] = []
