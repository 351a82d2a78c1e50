"""AlterClientQuotas (key 49): quotas to set or drop (KIP-546).

Versions 0–1, flexible from 1.
"""

from __future__ import annotations

from typing import Annotated

from core.protocol.schema import F, Int16, Int32, Message


class EntityData(Message):
    """An entry of `EntryData.entity`."""

    entity_type: Annotated[str, F("0+")] = ""
    entity_name: Annotated[str | None, F("0+", nullable="0+")] = ""


class OpData(Message):
    """An entry of `EntryData.ops`."""

    key: Annotated[str, F("0+")] = ""
    value: Annotated[float, F("0+")] = 0.0
    remove: Annotated[bool, F("0+")] = False


class EntryData(Message):
    """An entry of `AlterClientQuotasRequest.entries`."""

    entity: Annotated[list[EntityData], F("0+")] = []
    ops: Annotated[list[OpData], F("0+")] = []


class AlterClientQuotasRequest(Message):
    """AlterClientQuotas request."""

    entries: Annotated[list[EntryData], F("0+")] = []
    validate_only: Annotated[bool, F("0+")] = False


class AlterClientQuotasResponseEntryData(Message):
    """An entry of `AlterClientQuotasResponse.entries`."""

    error_code: Annotated[Int16, F("0+")] = 0
    error_message: Annotated[str | None, F("0+", nullable="0+")] = None
    entity: Annotated[list[EntityData], F("0+")] = []


class AlterClientQuotasResponse(Message):
    """AlterClientQuotas response."""

    throttle_time_ms: Annotated[Int32, F("0+")] = 0
    entries: Annotated[list[AlterClientQuotasResponseEntryData], F("0+")] = []
