"""DescribeClientQuotas (key 48): quotas that match a filter (KIP-546).

Versions 0–1, flexible from 1.
"""

from __future__ import annotations

from typing import Annotated

from core.protocol.schema import F, Int8, Int16, Int32, Message


class ComponentData(Message):
    """An entry of `DescribeClientQuotasRequest.components`."""

    entity_type: Annotated[str, F("0+")] = ""
    # 0 this name, 1 the default, 2 any.
    match_type: Annotated[Int8, F("0+")] = 0
    match: Annotated[str | None, F("0+", nullable="0+")] = ""


class DescribeClientQuotasRequest(Message):
    """DescribeClientQuotas request."""

    components: Annotated[list[ComponentData], F("0+")] = []
    strict: Annotated[bool, F("0+")] = False


class EntityData(Message):
    """An entry of `EntryData.entity`."""

    entity_type: Annotated[str, F("0+")] = ""
    entity_name: Annotated[str | None, F("0+", nullable="0+")] = ""


class ValueData(Message):
    """An entry of `EntryData.values`."""

    key: Annotated[str, F("0+")] = ""
    value: Annotated[float, F("0+")] = 0.0


class EntryData(Message):
    """An entry of `DescribeClientQuotasResponse.entries`."""

    entity: Annotated[list[EntityData], F("0+")] = []
    values: Annotated[list[ValueData], F("0+")] = []


class DescribeClientQuotasResponse(Message):
    """DescribeClientQuotas response."""

    throttle_time_ms: Annotated[Int32, F("0+")] = 0
    error_code: Annotated[Int16, F("0+")] = 0
    error_message: Annotated[str | None, F("0+", nullable="0+")] = None
    entries: Annotated[list[EntryData] | None, F("0+", nullable="0+")] = []
