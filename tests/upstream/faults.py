"""What the nodes of a `Cluster` do wrong, request by request.

A fault is a row: which requests it is for, how many of them, and what happens to them. The first row that fits a
request is used, and once it is used up it is dropped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from core.errors import ErrorCode

PRODUCE, FETCH, LIST_OFFSETS, METADATA = 0, 1, 2, 3
OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR, JOIN_GROUP, HEARTBEAT = 8, 9, 10, 11, 12
LEAVE_GROUP, SYNC_GROUP, API_VERSIONS, CREATE_TOPICS, INIT_PRODUCER_ID = 13, 14, 18, 19, 22


@dataclass
class Fault:
    """One row. Without a `node` it is for all of them; `times` below 0 has no limit.

    `close_before`: the connection breaks and the request is not carried out. `close_after`: it is carried out, and
    the answer is lost. `error`: the request is refused with a code; with `carried_out` it takes effect nevertheless.
    `delay`: seconds before it is carried out. `answer_delay`: seconds between that and the answer. `throttle_ms`:
    what the answer announces. `hold`: it is carried out when this event is set.
    """

    api: int
    node: int | None = None
    times: int = 1
    when: Callable[[Any], bool] | None = None
    close_before: bool = False
    close_after: bool = False
    error: ErrorCode | None = None
    carried_out: bool = False
    delay: float = 0.0
    answer_delay: float = 0.0
    throttle_ms: int = 0
    hold: asyncio.Event | None = None
    # How many requests it was used for.
    used: int = 0


@dataclass
class Faults:
    """The rows of a cluster."""

    rows: list[Fault] = field(default_factory=list)

    def add(self, api: int, **how: Any) -> Fault:
        """Add a row; see `Fault`."""
        fault = Fault(api, **how)
        self.rows.append(fault)
        return fault

    def clear(self) -> None:
        """Do everything right from now on."""
        self.rows.clear()

    def take(self, api: int, node: int, request: Any) -> Fault | None:
        """Return the row for a request, and count it."""
        for fault in self.rows:
            if fault.api != api or fault.node not in (None, node):
                continue
            if fault.when is not None and not fault.when(request):
                continue
            fault.used += 1
            if fault.times > 0 and fault.used >= fault.times:
                self.rows.remove(fault)
            return fault
        return None
