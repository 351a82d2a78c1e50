"""Groups in the metadata store: changes of groups as SQL effects, and rows as data of groups."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec

from core.groups.effects import (
    Change,
    GroupChange,
    GroupDeleted,
    ModernChange,
    OffsetsChange,
    StoredGroup,
    StoredMember,
    StoredModern,
    StoredModernMember,
    StoredOffset,
    StoredState,
)
from core.groups.pending_offsets import PendingChange, PendingOffset, Place, StagedOffset, StoredPending
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
        pending = await self._store.read(tables.load_pending)
        modern, modern_members = await self._store.read(tables.load_modern)
        return StoredState(
            (StoredGroup(*row) for row in groups),
            (_stored_member(*row) for row in members),
            (StoredOffset(row[0], row[1], row[2], CommittedOffset(*row[3:])) for row in offsets),
            (_stored_pending(*row) for row in pending),
            (StoredModern(*row) for row in modern),
            (StoredModernMember(*row) for row in modern_members),
        )

    def persist(self, changes: Sequence[Change]) -> asyncio.Future[None]:
        """See `GroupStore.persist`."""
        effects: list[Effect] = []
        for change in changes:
            if isinstance(change, OffsetsChange):
                effects.extend(offsets_effects(change))
            elif isinstance(change, GroupChange):
                effects.extend(_group(change))
            elif isinstance(change, ModernChange):
                effects.extend(_modern(change))
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


def _stored_pending(
    group_id: str, topic_id: bytes, partition: int, producer_id: int, *rest: Any
) -> StoredPending:
    pending = PendingOffset(*rest)._replace(superseded=bool(rest[-1]))
    return StoredPending(group_id, StagedOffset(Place(UUID(bytes=topic_id), partition), producer_id, pending))


def offsets_effects(change: OffsetsChange) -> list[Effect]:
    """Return the effects of a change of committed offsets, and of those that transactions have staged."""
    effects: list[Effect] = []
    group_id = change.group_id
    if change.saved:
        rows = [(group_id, topic, partition, *committed) for topic, partition, committed in change.saved]
        effects.append(tables.put_offsets(rows))
    if change.removed:
        effects.append(tables.remove_offsets(group_id, change.removed))
    if change.pending is not None:
        effects.extend(_pending(group_id, change.pending))
    return effects


def _pending(group_id: str, change: PendingChange) -> list[Effect]:
    effects: list[Effect] = []
    if change.superseded:
        rows = [(group_id, topic_id.bytes, p, change.commit_seq) for topic_id, p in change.superseded]
        effects.append(tables.supersede_pending(rows))
    if change.dropped:
        effects.append(
            tables.remove_pending([(group_id, topic_id.bytes, p) for topic_id, p in change.dropped])
        )
    if change.staged:
        effects.append(
            tables.put_pending(
                [
                    (group_id, place.topic_id.bytes, place.partition, producer_id, *pending)
                    for place, producer_id, pending in change.staged
                ]
            )
        )
    return effects


def _group(change: GroupChange) -> list[Effect]:
    group = change.group
    effects: list[Effect] = [tables.remove_modern(group.group_id)] if change.converted else []
    effects.append(
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
    )
    if change.replace_members:
        effects.append(tables.remove_all_members(group.group_id))
    elif change.removed:
        effects.append(tables.remove_members(group.group_id, change.removed))
    if change.members:
        effects.append(tables.put_members([_member(member) for member in change.members]))
    return effects


def _modern(change: ModernChange) -> list[Effect]:
    group = change.group
    effects: list[Effect] = [tables.remove_classic(group.group_id)] if change.converted else []
    effects.append(
        tables.put_modern(
            (group.group_id, group.group_type, group.epoch, group.empty_since_ms, group.details)
        )
    )
    if change.replace_members:
        effects.append(tables.remove_all_modern_members(group.group_id))
    elif change.removed:
        effects.append(tables.remove_modern_members(group.group_id, change.removed))
    if change.members:
        rows = [(member.group_id, member.member_id, member.details) for member in change.members]
        effects.append(tables.put_modern_members(rows))
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
