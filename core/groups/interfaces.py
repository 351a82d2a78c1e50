"""What the coordinator needs of a store. The broker hands it one; a test hands it a dictionary.

The coordinator does not know the database, and the database does not know groups: only these changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from core.groups.messages import GroupChange, StoredGroup, StoredMember
from core.groups.offsets import OffsetsChange, StoredOffset


@dataclass(frozen=True, slots=True)
class GroupDeleted:
    """A group goes, with its members and offsets."""

    group_id: str


Change = GroupChange | GroupDeleted | OffsetsChange


@dataclass(frozen=True, slots=True)
class StoredState:
    """All that is kept. Members come in the order in which they were first stored."""

    groups: Iterable[StoredGroup]
    members: Iterable[StoredMember]
    offsets: Iterable[StoredOffset]


class GroupStore(Protocol):
    """Durable storage of groups."""

    async def load(self) -> StoredState:
        """Everything that is kept."""
        ...

    def persist(self, changes: Sequence[Change]) -> asyncio.Future[None]:
        """Store `changes` in one transaction, in the order of the calls.

        The future is done once they are durable, and fails with a BrokerError when they could not be stored;
        futures are done in the order of the calls. The call itself may raise a BrokerError when too much
        waits already.
        """
        ...
