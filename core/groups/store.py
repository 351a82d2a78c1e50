"""Groups in the metadata store: changes of groups as SQL effects, and rows as data of groups."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec

from core.groups.effects import (
    Change,
    GroupChange,
    GroupDeleted,
    OffsetsChange,
    StoredGroup,
    StoredMember,
    StoredOffset,
    StoredState,
)
from core.metadata import groups as tables
from core.metadata.store import Effect, Store
from core.vocabulary.groups import CommittedOffset

_protocols_encoder = msgspec.msgpack.Encoder()
_protocols_decoder = msgspec.msgpack.Decoder(tuple[tuple[str, bytes], ...])


class MetadataGroupStore:
    """A `GroupStore` over the broker's metadata store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def load(self) -> StoredState:
        """See `GroupStore.load`."""
        groups, members, offsets = await self._store.read(tables.load_groups)
        return StoredState(
            (StoredGroup(*row) for row in groups),
            (_stored_member(*row) for row in members),
            (StoredOffset(row[0], row[1], row[2], CommittedOffset(*row[3:])) for row in offsets),
        )

    def persist(self, changes: Sequence[Change]) -> asyncio.Future[None]:
        """See `GroupStore.persist`."""
        effects: list[Effect] = []
        for change in changes:
            if isinstance(change, OffsetsChange):
                effects.extend(_offsets(change))
            elif isinstance(change, GroupChange):
                effects.extend(_group(change))
            else:
                assert isinstance(change, GroupDeleted)
                effects.append(tables.remove_group(change.group_id))
        return self._store.submit(effects)


def _stored_member(group_id: str, member_id: str, *rest: Any) -> StoredMember:
    instance_id, client_id, client_host, session_ms, rebalance_ms, protocols, assignment = rest
    return StoredMember(
        group_id,
        member_id,
        instance_id,
        client_id,
        client_host,
        session_ms,
        rebalance_ms,
        _protocols_decoder.decode(protocols),
        assignment,
    )


def _offsets(change: OffsetsChange) -> list[Effect]:
    effects: list[Effect] = []
    group_id = change.group_id
    if change.saved:
        rows = [(group_id, topic, partition, *committed) for topic, partition, committed in change.saved]
        effects.append(tables.put_offsets(rows))
    if change.removed:
        effects.append(tables.remove_offsets(group_id, change.removed))
    return effects


def _group(change: GroupChange) -> list[Effect]:
    group = change.group
    effects: list[Effect] = [
        tables.put_group(
            (
                group.group_id,
                group.state,
                group.protocol_type,
                group.generation,
                group.protocol,
                group.leader_id,
                group.empty_since_ms,
            )
        )
    ]
    if change.replace_members:
        effects.append(tables.remove_all_members(group.group_id))
    elif change.removed:
        effects.append(tables.remove_members(group.group_id, change.removed))
    if change.members:
        effects.append(tables.put_members([_member(member) for member in change.members]))
    return effects


def _member(member: StoredMember) -> tables.Row:
    return (
        member.group_id,
        member.member_id,
        member.group_instance_id,
        member.client_id,
        member.client_host,
        member.session_timeout_ms,
        member.rebalance_timeout_ms,
        _protocols_encoder.encode(member.protocols),
        member.assignment,
    )
