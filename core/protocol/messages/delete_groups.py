"""DeleteGroups (key 42): groups to delete, with their offsets (KIP-229).

Versions 0–2, flexible from 2.
"""

from __future__ import annotations

from typing import Annotated

from core.protocol.schema import F, Int16, Int32, Message


class DeleteGroupsRequest(Message):
    """DeleteGroups request."""

    groups_names: Annotated[list[str], F("0+")] = []


class DeletableGroupResult(Message):
    """An entry of `DeleteGroupsResponse.results`."""

    group_id: Annotated[str, F("0+")] = ""
    error_code: Annotated[Int16, F("0+")] = 0


class DeleteGroupsResponse(Message):
    """DeleteGroups response."""

    throttle_time_ms: Annotated[Int32, F("0+")] = 0
    results: Annotated[list[DeletableGroupResult], F("0+")] = []
