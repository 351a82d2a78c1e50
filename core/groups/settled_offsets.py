"""Offsets of groups that a decision commits, with a comparison to the offset that is committed before it.

Theory. Memory follows the store: a commit is visible once it is durable. So an expected offset is compared with what
is visible and with all that is on its way to the disk, in the turn of the loop in which the decision is handed to the
store, which keeps that order:

    all are another offset                    the comparison fails: INVALID_UPDATE_VERSION, with that offset
    they differ                               the disk may still refuse the newer ones, so a client may not be told of
                                              them: CONCURRENT_TRANSACTIONS, to be tried again
    a transaction has staged an offset        it may be committed at any time: CONCURRENT_TRANSACTIONS as well

The store writes in the order of the calls, so nothing can come between the comparison and the commit. Of two that
expect the same offset, the second has to wait for the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from core.errors import BrokerError, ErrorCode
from core.groups.effects import OffsetsChange
from core.groups.offset_store import OffsetStore
from core.groups.refusals import refusal
from core.groups.registry import Entry, GroupRegistry
from core.groups.share_group import ShareGroup
from core.groups.store import offsets_effects
from core.metadata.store import Effect
from core.vocabulary.groups import NO_MEMBER, NO_OFFSET, Commit, CommitRequest
from core.vocabulary.settlements import ANY_OFFSET, Fault, OffsetToSettle, RefusedError, unexpected


class _Part(NamedTuple):
    entry: Entry
    change: OffsetsChange


class OffsetsSettlement:
    """What a decision changes in groups: `effects` for the store, then `apply` for memory."""

    def __init__(
        self, registry: GroupRegistry, offsets: OffsetStore, changes: Sequence[OffsetsChange]
    ) -> None:
        self._registry = registry
        self._offsets = offsets
        self._changes = changes
        self._parts: list[_Part] = []

    @property
    def effects(self) -> list[Effect]:
        """What is stored. From here on these commits are under way: others are compared with them."""
        effects: list[Effect] = []
        for change in self._changes:
            entry = self._registry.get(change.group_id)
            assert entry is not None, "a group of the decision was deleted in this turn"
            self._offsets.supersede(change)
            entry.writing[id(change)] = entry.settling[id(change)] = change
            entry.stored = True
            self._parts.append(_Part(entry, change))
            effects += offsets_effects(change)
        return effects

    def apply(self) -> None:
        """Make the commits visible. To be called in the turn in which the effects are known to be durable."""
        for entry, change in self._parts:
            del entry.writing[id(change)], entry.settling[id(change)]
            entry.offsets.apply(change)
            if change.pending is not None:
                entry.pending.apply(change.pending)


class SettledOffsets:
    """Offsets that decisions commit. Used on the event loop only."""

    def __init__(self, registry: GroupRegistry, offsets: OffsetStore) -> None:
        self._registry = registry
        self._offsets = offsets

    def settle(self, wanted: Sequence[OffsetToSettle]) -> OffsetsSettlement:
        """Check offsets, no partition of a group twice, and return the change that commits them.

        Raises `RefusedError` with all faults, by index: UNKNOWN_TOPIC_OR_PARTITION, OFFSET_METADATA_TOO_LARGE,
        NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND, INVALID_GROUP_ID, UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION,
        FENCED_INSTANCE_ID, REBALANCE_IN_PROGRESS, INVALID_UPDATE_VERSION, CONCURRENT_TRANSACTIONS,
        POLICY_VIOLATION.
        """
        groups: dict[str, dict[int, OffsetToSettle]] = {}
        for index, one in enumerate(wanted):
            groups.setdefault(one.group_id, {})[index] = one
        faults: dict[int, BrokerError] = {}
        changes = []
        for group_id, offsets in groups.items():
            for index, one in offsets.items():
                if (error := self._refusal(one)) is not None:
                    faults[index] = error
            changes.append(self._change(group_id, offsets, faults))
        if not faults:
            faults = self._create_missing(groups)
        if faults:
            raise RefusedError([Fault((index,), faults[index]) for index in sorted(faults)])
        return OffsetsSettlement(self._registry, self._offsets, changes)

    def is_settling(self, group_id: str, topic: str, partition: int) -> bool:
        """Return whether a decision that is being stored commits an offset of the partition."""
        entry = self._registry.get(group_id)
        return entry is not None and any(
            (topic, partition) == (one, number)
            for change in entry.settling.values()
            for one, number, _ in change.saved
        )

    def _refusal(self, one: OffsetToSettle) -> BrokerError | None:
        """Return why the group does not take a commit now, or why the committed offset is not the expected one."""
        registry, group_id = self._registry, one.group_id
        error = registry.closed
        if not error and not group_id:
            error = ErrorCode.INVALID_GROUP_ID
        entry = registry.get(group_id)
        if not error and entry is None and one.generation >= 0:
            error = ErrorCode.GROUP_ID_NOT_FOUND
        if not error and entry is not None:
            named = one.generation >= 0 or one.member_id != NO_MEMBER or one.group_instance_id is not None
            if named or entry.group.is_dead or isinstance(entry.group, ShareGroup):
                request = CommitRequest(
                    [Commit(one.topic, one.partition, one.offset)],
                    one.member_id,
                    one.generation,
                    one.group_instance_id,
                )
                checked = entry.group.check_commit(request, registry.clock.monotonic())
                error = checked[0] if isinstance(checked, list) else checked
            elif not entry.group.is_empty:
                error = ErrorCode.NON_EMPTY_GROUP
        if error:
            return refusal(error, group_id, one.member_id)
        return None if one.expected == ANY_OFFSET else self._compared(one, entry)

    def _compared(self, one: OffsetToSettle, entry: Entry | None) -> BrokerError | None:
        """Return the refusal unless the committed offset is the expected one, whatever becomes of other commits."""
        if entry is None:
            return None if one.expected == NO_OFFSET else unexpected(one, NO_OFFSET)
        committed = entry.offsets.get(one.topic, one.partition)
        offsets = [NO_OFFSET if committed is None else committed.offset]
        for change in entry.writing.values():
            offsets += [
                new.offset
                for topic, partition, new in change.saved
                if (topic, partition) == (one.topic, one.partition)
            ]
            if (one.topic, one.partition) in change.removed:
                offsets.append(NO_OFFSET)
        if len(set(offsets)) == 1:
            if offsets[0] != one.expected:
                return unexpected(one, offsets[0])
            if not self._offsets.is_staged(entry, one.topic, one.partition):
                return None
        return BrokerError(
            ErrorCode.CONCURRENT_TRANSACTIONS,
            f"Another commit of {one.topic}-{one.partition} in group {one.group_id!r} is under way; try again.",
            group=one.group_id,
            topic=one.topic,
            partition=one.partition,
        )

    def _change(
        self, group_id: str, offsets: dict[int, OffsetToSettle], faults: dict[int, BrokerError]
    ) -> OffsetsChange:
        """Return the change of one group; add what is wrong with its offsets themselves to `faults`."""
        commits = [
            Commit(one.topic, one.partition, one.offset, metadata=one.metadata) for one in offsets.values()
        ]
        errors, change = self._offsets.check(group_id, commits)
        for (index, one), error in zip(offsets.items(), errors, strict=True):
            if error:
                faults[index] = _of_offset(error, one)
        if all(one.generation < 0 and one.member_id == NO_MEMBER for one in offsets.values()):
            change.saved += self._offsets.check_register(group_id, commits)
        return change

    def _create_missing(self, groups: dict[str, dict[int, OffsetToSettle]]) -> dict[int, BrokerError]:
        for group_id, offsets in groups.items():
            if self._registry.get(group_id) is None:
                _, error = self._registry.create(group_id)
                if error:
                    return dict.fromkeys(offsets, refusal(error, group_id))
        return {}


def _of_offset(error: ErrorCode, one: OffsetToSettle) -> BrokerError:
    sentences = {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: f"There is no partition {one.topic}-{one.partition}.",
        ErrorCode.OFFSET_METADATA_TOO_LARGE: f"The metadata of {one.topic}-{one.partition} is too long.",
    }
    return BrokerError(error, sentences.get(error, "The offsets of one group are too large together."))
