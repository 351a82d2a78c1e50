"""What goes into the group machine and what comes out of it: plain data, no behaviour.

Times: `Moment.monotonic` is in seconds and drives deadlines; `Moment.wall_ms` is only ever stored. A *waiter* is
whatever the caller wants back with its answer (the coordinator hands in a future); the machine never looks
into it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from core.vocabulary.groups import (
    JoinReply,
    SyncReply,
)


class Moment(NamedTuple):
    """One point in time, on both clocks."""

    monotonic: float
    wall_ms: int


# --- requests ----------------------------------------------------------------------------------------------


# --- answers -----------------------------------------------------------------------------------------------


class Answer(NamedTuple):
    """An answer that is due, once the changes that came with it are durable."""

    waiter: object
    reply: JoinReply | SyncReply


# --- what must be kept ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StoredGroup:
    """A group as it is kept. `empty_since_ms` is wall time, −1 while the group has members."""

    group_id: str
    state: str
    protocol_type: str | None
    generation: int
    protocol: str | None
    leader_id: str | None
    empty_since_ms: int


@dataclass(frozen=True, slots=True)
class StoredMember:
    """A member as it is kept: all it takes to go on after a restart without a rejoin."""

    group_id: str
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes


@dataclass(frozen=True, slots=True)
class GroupChange:
    """One group is saved: its row, the members that changed, those that went.

    With `replace_members` the members given are all there are; whatever else is stored goes.
    """

    group: StoredGroup
    members: tuple[StoredMember, ...] = ()
    removed: tuple[str, ...] = ()
    replace_members: bool = False


@dataclass(slots=True)
class Effects:
    """All that one step of the machine asks for: keep `change` (if any) first, then give the answers."""

    change: GroupChange | None
    answers: list[Answer]


# --- views ---------------------------------------------------------------------------------------------------
