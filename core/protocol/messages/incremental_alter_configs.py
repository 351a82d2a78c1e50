"""IncrementalAlterConfigs (key 44): single settings to set, delete, append to or subtract from (KIP-339).

Versions 0–1, flexible from 1.

Operation 0 sets, 1 deletes, 2 appends, 3 subtracts.
"""

from __future__ import annotations

from typing import Annotated

from core.protocol.schema import F, Int8, Int16, Int32, Message


class AlterableConfig(Message):
    """An entry of `AlterConfigsResource.configs`."""

    name: Annotated[str, F("0+")] = ""
    config_operation: Annotated[Int8, F("0+")] = 0
    value: Annotated[str | None, F("0+", nullable="0+")] = ""


class AlterConfigsResource(Message):
    """An entry of `IncrementalAlterConfigsRequest.resources`."""

    resource_type: Annotated[Int8, F("0+")] = 0
    resource_name: Annotated[str, F("0+")] = ""
    configs: Annotated[list[AlterableConfig], F("0+")] = []


class IncrementalAlterConfigsRequest(Message):
    """IncrementalAlterConfigs request."""

    resources: Annotated[list[AlterConfigsResource], F("0+")] = []
    validate_only: Annotated[bool, F("0+")] = False


class AlterConfigsResourceResponse(Message):
    """An entry of `IncrementalAlterConfigsResponse.responses`."""

    error_code: Annotated[Int16, F("0+")] = 0
    error_message: Annotated[str | None, F("0+", nullable="0+")] = None
    resource_type: Annotated[Int8, F("0+")] = 0
    resource_name: Annotated[str, F("0+")] = ""


class IncrementalAlterConfigsResponse(Message):
    """IncrementalAlterConfigs response."""

    throttle_time_ms: Annotated[Int32, F("0+")] = 0
    responses: Annotated[list[AlterConfigsResourceResponse], F("0+")] = []
