"""ListConfigResources (key 74): resources that have settings of their own (KIP-714, KIP-1142).

Versions 0–1, flexible from 0.
"""

from __future__ import annotations

from typing import Annotated

from core.protocol.schema import F, Int8, Int16, Int32, Message


class ListConfigResourcesRequest(Message):
    """ListConfigResources request."""

    resource_types: Annotated[list[Int8], F("1+")] = []


class ConfigResource(Message):
    """An entry of `ListConfigResourcesResponse.config_resources`."""

    resource_name: Annotated[str, F("0+")] = ""
    resource_type: Annotated[Int8, F("1+")] = 16


class ListConfigResourcesResponse(Message):
    """ListConfigResources response."""

    throttle_time_ms: Annotated[Int32, F("0+")] = 0
    error_code: Annotated[Int16, F("0+")] = 0
    config_resources: Annotated[list[ConfigResource], F("0+")] = []
