"""AlterConfigs (key 33): all settings of a resource at once (KIP-133).

Versions 0–2, flexible from 2.

A setting that is not named gets its default.
"""

from __future__ import annotations

from typing import Annotated

from core.protocol.schema import F, Int8, Int16, Int32, Message


class AlterableConfig(Message):
    """An entry of `AlterConfigsResource.configs`."""

    name: Annotated[str, F("0+")] = ""
    value: Annotated[str | None, F("0+", nullable="0+")] = ""


class AlterConfigsResource(Message):
    """An entry of `AlterConfigsRequest.resources`."""

    resource_type: Annotated[Int8, F("0+")] = 0
    resource_name: Annotated[str, F("0+")] = ""
    configs: Annotated[list[AlterableConfig], F("0+")] = []


class AlterConfigsRequest(Message):
    """AlterConfigs request."""

    resources: Annotated[list[AlterConfigsResource], F("0+")] = []
    validate_only: Annotated[bool, F("0+")] = False


class AlterConfigsResourceResponse(Message):
    """An entry of `AlterConfigsResponse.responses`."""

    error_code: Annotated[Int16, F("0+")] = 0
    error_message: Annotated[str | None, F("0+", nullable="0+")] = None
    resource_type: Annotated[Int8, F("0+")] = 0
    resource_name: Annotated[str, F("0+")] = ""


class AlterConfigsResponse(Message):
    """AlterConfigs response."""

    throttle_time_ms: Annotated[Int32, F("0+")] = 0
    responses: Annotated[list[AlterConfigsResourceResponse], F("0+")] = []
