"""CreateAcls (key 30): access rules to add (KIP-140).

Versions 0–3, flexible from 2.

Version 1 has prefixed patterns (KIP-290).
"""

from __future__ import annotations

from typing import Annotated

from core.protocol.schema import F, Int8, Int16, Int32, Message


class AclCreation(Message):
    """An entry of `CreateAclsRequest.creations`."""

    resource_type: Annotated[Int8, F("0+")] = 0
    resource_name: Annotated[str, F("0+")] = ""
    resource_pattern_type: Annotated[Int8, F("1+")] = 3
    principal: Annotated[str, F("0+")] = ""
    host: Annotated[str, F("0+")] = ""
    operation: Annotated[Int8, F("0+")] = 0
    permission_type: Annotated[Int8, F("0+")] = 0


class CreateAclsRequest(Message):
    """CreateAcls request."""

    creations: Annotated[list[AclCreation], F("0+")] = []


class AclCreationResult(Message):
    """An entry of `CreateAclsResponse.results`."""

    error_code: Annotated[Int16, F("0+")] = 0
    error_message: Annotated[str | None, F("0+", nullable="0+")] = None


class CreateAclsResponse(Message):
    """CreateAcls response."""

    throttle_time_ms: Annotated[Int32, F("0+")] = 0
    results: Annotated[list[AclCreationResult], F("0+")] = []
