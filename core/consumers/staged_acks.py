"""Batches of managed consumers that are acknowledged by a decision, together with what else it commits.

Theory. The client has made its output from the whole batch. So the batch is acknowledged as a whole or not at all: if
the consumer has given up a partition of it meanwhile, the decision is refused, and the new owner delivers those
records again.

From `stage` to `release` nothing else acknowledges or polls the consumer, so that no two decisions take one batch.
Its state in memory changes once the decision is durable. What is stored of the consumer in between is already without
the batch (`Consumer.settling`), because the store has the decision first.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from core.consumers.consumer import Consumer
from core.consumers.interfaces import MemberGroups
from core.consumers.reading import Reading
from core.consumers.registry import Registry
from core.consumers.store import ConsumerStore
from core.errors import BrokerError, ErrorCode
from core.metadata.store import Effect
from core.vocabulary.consumers import UNKNOWN_TOKEN, Range, illegal_state
from core.vocabulary.groups import NO_GENERATION, NO_MEMBER
from core.vocabulary.settlements import (
    ACK_STAGED,
    ALREADY_ACKNOWLEDGED,
    BATCH_CHANGED,
    OffsetToSettle,
    RefusedError,
)
from core.vocabulary.transactions import Settlement


class AckSettlement:
    """The change that acknowledges one batch: the group's offsets, and the consumer's state."""

    def __init__(
        self,
        consumer: Consumer,
        ranges: tuple[Range, ...],
        offsets: Settlement,
        store: ConsumerStore,
        changed: Callable[[], None],
    ) -> None:
        self._consumer = consumer
        self._ranges = ranges
        self._offsets = offsets
        self._store = store
        self._changed = changed

    @property
    def effects(self) -> list[Effect]:
        """What is stored. From here on the store has the consumer without the batch."""
        self._consumer.settling = self._ranges
        return [*self._offsets.effects, *self._store.settlement(self._consumer, self._ranges)]

    def apply(self) -> None:
        """Make it visible."""
        self._offsets.apply()
        self._consumer.settling = ()
        self._consumer.take(self._ranges)
        self._changed()


class StagedBatch:
    """One batch that a decision will acknowledge; see `vocabulary.StagedAck`."""

    def __init__(
        self,
        consumer: Consumer,
        held: ExitStack,
        groups: MemberGroups,
        store: ConsumerStore,
        changed: Callable[[], None],
    ) -> None:
        self._consumer = consumer
        self._held = held
        self._groups = groups
        self._store = store
        self._changed = changed
        # What the client has been given under the token.
        self.ranges = tuple(consumer.outstanding.values())

    def settle(self) -> AckSettlement:
        """Check that the batch may still be acknowledged, and return the change; see `vocabulary.StagedAck`."""
        consumer = self._consumer
        if consumer.gone:
            raise BrokerError(
                ErrorCode.RESOURCE_NOT_FOUND,
                f"Group {consumer.group_id!r} has no consumer {consumer.name!r} any more.",
                group=consumer.group_id,
                consumer=consumer.name,
            )
        consumer.membership.require_unfenced()
        if consumer.revoked or tuple(consumer.outstanding.values()) != self.ranges:
            raise _changed(consumer)
        generation, member_id, instance_id = NO_GENERATION, NO_MEMBER, None
        if consumer.subscription.joins:
            generation = max(consumer.membership.generation, 0)
            member_id, instance_id = consumer.membership.member_id, consumer.options.group_instance_id
        wanted = [
            OffsetToSettle(
                consumer.group_id, one.topic, one.partition, one.next_offset,
                generation=generation, member_id=member_id, group_instance_id=instance_id,
            )
            for one in self.ranges
        ]  # fmt: skip
        try:
            offsets = self._groups.settle_offsets(wanted)
        except RefusedError as refusal:
            # Of a batch only the whole can be named.
            raise refusal.faults[0].error from None
        return AckSettlement(consumer, self.ranges, offsets, self._store, self._changed)

    def release(self) -> None:
        """Let the consumer continue."""
        if self._consumer.staged is self:
            self._consumer.staged = None
            self._held.close()
            self._changed()


def stage(
    registry: Registry,
    reading: Reading,
    groups: MemberGroups,
    store: ConsumerStore,
    group_id: str,
    name: str,
    token: str,
    changed: Callable[[Consumer], None],
) -> StagedBatch:
    """Hold a consumer for a decision that acknowledges the batch of this token; see `Consumers.stage_ack`."""
    with ExitStack() as stack:
        consumer = stack.enter_context(registry.in_use(group_id, name))
        require_unstaged(consumer)
        sequence = consumer.sequence_of(token)
        if sequence is None or consumer.advancing:
            raise illegal_state(
                UNKNOWN_TOKEN,
                f"Consumer {consumer.name!r} has delivered no batch with the token {token[:60]!r}.",
            )
        consumer.membership.require_unfenced()
        reading.trim(consumer)
        if sequence == consumer.sequence and consumer.revoked:
            raise _changed(consumer)
        if sequence != consumer.sequence or not consumer.outstanding:
            raise illegal_state(
                ALREADY_ACKNOWLEDGED,
                f"The batch {token[:60]!r} of consumer {consumer.name!r} has been acknowledged before, without this.",
            )
        staged = StagedBatch(consumer, stack.pop_all(), groups, store, lambda: changed(consumer))
        consumer.staged = staged
        return staged


def require_unstaged(consumer: Consumer) -> None:
    """Raise INVALID_RECORD_STATE with reason `ack-staged` while a decision holds the consumer."""
    if consumer.staged is not None:
        raise illegal_state(
            ACK_STAGED,
            f"A transaction is about to acknowledge the batch of consumer {consumer.name!r}; end it first.",
        )


def _changed(consumer: Consumer) -> BrokerError:
    return illegal_state(
        BATCH_CHANGED,
        f"Consumer {consumer.name!r} has given up a part of the batch meanwhile; poll again for what is left.",
    )
