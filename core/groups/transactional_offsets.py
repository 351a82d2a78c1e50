"""TxnOffsetCommit, and what the end of a transaction does to the offsets that it has staged.

Theory. Statements and memory see the same calls in the same order, because the store writes in the order of the calls
and answers in it. The end of a transaction is written by a statement that moves rows which are not superseded, and
memory repeats it with its own staged offsets. So a commit that is on its way to the disk when the transaction ends
wins or loses alike in both.

Answers come from memory only: the store may already have a decision that is not visible yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from core.errors import BrokerError, ErrorCode
from core.facade import Logs
from core.groups.effects import OffsetsChange
from core.groups.offset_store import OffsetStore
from core.groups.pending_offsets import PendingChange, PendingOffset, Place, StagedOffset
from core.groups.registry import Entry, GroupRegistry
from core.metadata import groups as tables
from core.metadata.store import Effect
from core.vocabulary.groups import Commit, CommittedOffset, TransactionalCommit
from core.vocabulary.transactions import ProducerIdAndEpoch


@dataclass(frozen=True, slots=True)
class _End:
    """The end of the transaction of a producer. Of what it has staged, only what is older than `commit_seq`."""

    producer_id: int
    producer_epoch: int
    commit: bool
    commit_seq: int

    def commits(self, pending: PendingOffset) -> bool:
        """Return whether the end commits a staged offset."""
        return self.commit and not pending.superseded and pending.producer_epoch == self.producer_epoch


class Settlement:
    """What the end of a transaction changes in groups: `effects` for the store, then `apply` for memory."""

    def __init__(self, offsets: TransactionalOffsets, end: _End) -> None:
        self._offsets = offsets
        self._end = end
        self.effects: list[Effect] = offsets.effects(end)

    def apply(self) -> None:
        """Make the end visible. To be called when the effects are durable, in the turn in which their future is."""
        self._offsets.apply(self._end)


class TransactionalOffsets:
    """Staged offsets of the groups of a registry. Used on the event loop only."""

    def __init__(self, registry: GroupRegistry, broker: Logs, offsets: OffsetStore) -> None:
        self._registry = registry
        self._broker = broker
        self._offsets = offsets

    # --- TxnOffsetCommit ---------------------------------------------------------------------------------------

    async def stage(self, group_id: str, request: TransactionalCommit) -> list[ErrorCode]:
        """Handle TxnOffsetCommit: return an error for each commit, in their order, once the others are durable.

        A commit without a generation is accepted even if the group has members, and makes the group if there is none;
        with one, a group that does not exist is ILLEGAL_GENERATION. Whether the transaction is open is not looked at.
        """
        commit = request.commit
        error = self._registry.closed
        entry = self._registry.get(group_id)
        if not error and entry is None:
            if commit.generation >= 0:
                error = ErrorCode.ILLEGAL_GENERATION
            else:
                entry, error = self._registry.create(group_id)
        if not error and entry is not None:
            refused = entry.group.check_staged(commit)
            if isinstance(refused, list):
                taken = [c for c, one in zip(commit.commits, refused, strict=True) if not one]
                answers = iter(await self._stage(group_id, entry, request, taken))
                return [one or next(answers) for one in refused]
            error = refused
        if error or entry is None:
            return [error] * len(commit.commits)
        return await self._stage(group_id, entry, request, commit.commits)

    async def _stage(
        self, group_id: str, entry: Entry, request: TransactionalCommit, commits: Sequence[Commit]
    ) -> list[ErrorCode]:
        results, checked = self._offsets.check(group_id, commits)
        if not checked.saved:
            return results
        commit_seq = self._registry.next_commit_seq()
        staged = [
            StagedOffset(
                Place(self._broker.topics.get(topic).topic_id, partition),
                request.producer_id,
                PendingOffset(
                    request.producer_epoch,
                    one.offset,
                    one.leader_epoch,
                    one.metadata,
                    one.commit_ms,
                    commit_seq,
                ),
            )
            for topic, partition, one in checked.saved
        ]
        change = OffsetsChange(group_id, pending=PendingChange(commit_seq, staged=staged))
        error = await self._registry.write(entry, change)
        return [error if result is ErrorCode.NONE else result for result in results]

    def is_unstable(self, group_id: str, topic: str, partition: int) -> bool:
        """Return whether an open transaction has staged an offset of the partition (KIP-447)."""
        self._registry.require_open()
        entry = self._registry.get(group_id)
        if entry is None or not entry.pending:
            return False
        try:
            topic_id = self._broker.topics.get(topic).topic_id
        except BrokerError:
            return False
        return Place(topic_id, partition) in entry.pending

    # --- the end of a transaction ------------------------------------------------------------------------------

    def groups_of(self, producer_id: int) -> list[str]:
        """Return the groups in which a producer has staged offsets."""
        return [group_id for group_id, _ in self._entries_of(producer_id)]

    def count(self) -> int:
        """Return how many offsets are staged."""
        return sum(1 for _, entry in self._registry for _ in entry.pending)

    def producers(self) -> list[ProducerIdAndEpoch]:
        """Return the producers that have staged offsets, under each epoch."""
        return sorted(
            {
                ProducerIdAndEpoch(producer_id, pending.producer_epoch)
                for _, entry in self._registry
                for _, producer_id, pending in entry.pending
            }
        )

    def settle(self, producer_id: int, producer_epoch: int, *, commit: bool) -> Settlement:
        """Return what the end of a transaction changes; the caller writes it in the same turn.

        `producer_epoch` is the one under which the offsets were staged. What was staged under another one is dropped.
        """
        return Settlement(self, _End(producer_id, producer_epoch, commit, self._registry.next_commit_seq()))

    def effects(self, end: _End) -> list[Effect]:
        """Return what is to be stored: older offsets of other transactions lose, the producer's own move or go."""
        if not end.commit:
            return [tables.remove_pending_of_producer(end.producer_id)]
        losers = [
            (group_id, place.topic_id.bytes, place.partition, pending.commit_seq)
            for group_id, entry in self._entries_of(end.producer_id)
            for place, _, pending in entry.pending.of_producer(end.producer_id)
            if end.commits(pending) and entry.pending.has_older(place, pending.commit_seq)
        ]
        return [
            tables.commit_pending(end.producer_id, end.producer_epoch),
            tables.supersede_pending(losers),
            tables.remove_pending_of_producer(end.producer_id),
        ]

    def apply(self, end: _End) -> None:
        """Repeat in memory what `effects` have done in the store."""
        for _, entry in self._entries_of(end.producer_id):
            for place, producer_id, pending in entry.pending.of_producer(end.producer_id):
                if pending.commit_seq >= end.commit_seq:
                    continue
                entry.pending.remove(place, producer_id)
                topic = self._name(place.topic_id)
                if topic is not None and end.commits(pending):
                    committed = CommittedOffset(
                        pending.offset, pending.leader_epoch, pending.metadata, pending.commit_ms, -1
                    )
                    entry.offsets.put(topic, place.partition, committed)
                    entry.pending.supersede(place, pending.commit_seq)
        self._registry.settled(end.producer_id)

    def _entries_of(self, producer_id: int) -> Sequence[tuple[str, Entry]]:
        return self._registry.with_pending_of(producer_id)

    def _name(self, topic_id: UUID) -> str | None:
        try:
            return self._broker.topics.name_of(topic_id)
        except BrokerError:
            return None
