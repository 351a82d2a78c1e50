"""Managed consumers: members of consumer groups that live in the broker, driven by polls from outside.

Every method names a consumer by its group and its own name, and raises RESOURCE_NOT_FOUND when there is none
(it may have expired: an idle consumer goes after its `ttl_ms`). All of them count as signs of life.

Two ways to poll:

- with tokens (native): `poll(ack=token)` acknowledges the batch before and gives the next. Until its token is
  acknowledged the same batch comes again. Acknowledged means committed in the group, durably.
- with `advance=True` (REST Proxy v2): each poll goes on behind what the poll before delivered. Nothing is
  committed but by `commit`, or by the option `auto_commit`. A request that follows proves that the answer before
  it arrived; a door that sees its client go away says so with `take_back`.
"""

from __future__ import annotations

from collections.abc import Sequence

from core.broker.consumer_messages import (
    Acknowledged,
    Batch,
    ConsumerInfo,
    ConsumerOptions,
    PartitionCommit,
    PartitionPosition,
    Seek,
    Subscription,
)
from core.broker.groups import CommittedOffset
from core.broker.records import RecordVerbs
from core.types import TopicPartition


class Consumers:
    """All managed consumers of a broker, as `broker.consumers`."""

    def __init__(self, broker: RecordVerbs) -> None:
        raise NotImplementedError

    # --- life ----------------------------------------------------------------------------------------------

    async def create(
        self,
        group_id: str,
        name: str | None = None,
        *,
        subscription: Subscription = Subscription(),  # noqa: B008 (frozen)
        options: ConsumerOptions = ConsumerOptions(),  # noqa: B008 (frozen)
    ) -> ConsumerInfo:
        """Make a consumer; durable when it returns. Without a name it gets one.

        It begins to join at once, if it has subscribed; nothing waits for that but a poll. Raises
        DUPLICATE_RESOURCE (the name is taken), INVALID_GROUP_ID, INVALID_REQUEST (the name, an option),
        INVALID_SESSION_TIMEOUT, UNSUPPORTED_ASSIGNOR, THROTTLING_QUOTA_EXCEEDED (too many consumers), and
        what `subscribe` and `assign` raise.
        """
        raise NotImplementedError

    def get(self, group_id: str, name: str) -> ConsumerInfo:
        """The consumer as it is."""
        raise NotImplementedError

    def of_group(self, group_id: str) -> list[ConsumerInfo]:
        """The consumers of a group, by name."""
        raise NotImplementedError

    async def delete(self, group_id: str, name: str) -> None:
        """Leave the group and forget the consumer. With `auto_commit`, what was delivered is committed before."""
        raise NotImplementedError

    # --- subscription --------------------------------------------------------------------------------------

    async def subscribe(
        self, group_id: str, name: str, *, topics: Sequence[str] = (), pattern: str | None = None
    ) -> None:
        """Read topics, or all topics that match a pattern; replaces the subscription before.

        A topic that does not exist is created where the settings allow it, as for any Kafka consumer. Raises
        INVALID_RECORD_STATE with reason `mixed-subscription` when the consumer has assigned itself partitions,
        UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION, INVALID_REGULAR_EXPRESSION.
        """
        raise NotImplementedError

    async def assign(self, group_id: str, name: str, partitions: Sequence[TopicPartition]) -> None:
        """Read these partitions, without membership; replaces the assignment before.

        Raises INVALID_RECORD_STATE with reason `mixed-subscription` when the consumer has subscribed, and
        UNKNOWN_TOPIC_OR_PARTITION.
        """
        raise NotImplementedError

    async def unsubscribe(self, group_id: str, name: str) -> None:
        """Read nothing any more; the member leaves the group. Also for consumers with assignments."""
        raise NotImplementedError

    # --- reading -------------------------------------------------------------------------------------------

    async def poll(
        self,
        group_id: str,
        name: str,
        *,
        limit: int,
        max_bytes: int,
        wait_ms: int,
        min_bytes: int = 1,
        ack: str | None = None,
        advance: bool = False,
    ) -> Batch:
        """The next batch: at most `limit` records and about `max_bytes` of them, but at least one record.

        One sweep over all partitions that are assigned and not paused; answered on the first data (of
        `min_bytes` together, where set), at the latest after `wait_ms`, which also covers the wait for the
        group. Cancelling the poll moves nothing. A poll that comes while another waits takes its place; the
        other is answered with nothing.

        Raises INVALID_RECORD_STATE with reason `unknown-token` or `not-subscribed`, FENCED_INSTANCE_ID,
        OFFSET_OUT_OF_RANGE (`start` is `none` and there is no position), CORRUPT_MESSAGE with `topic`,
        `partition` and `next_offset` (seek there), INCONSISTENT_GROUP_PROTOCOL, GROUP_MAX_SIZE_REACHED,
        KAFKA_STORAGE_ERROR.
        """
        raise NotImplementedError

    def take_back(self, group_id: str, name: str, token: str | None) -> None:
        """The batch of this token never reached its client: the next poll with `advance` delivers it again."""
        raise NotImplementedError

    async def ack(self, group_id: str, name: str, token: str) -> Acknowledged:
        """Acknowledge the batch of this token, without a poll. Doing it again changes nothing."""
        raise NotImplementedError

    # --- positions and offsets -----------------------------------------------------------------------------

    def positions(self, group_id: str, name: str) -> list[PartitionPosition]:
        """The partitions that are assigned now, with the position of each."""
        raise NotImplementedError

    async def seek(self, group_id: str, name: str, seeks: Sequence[Seek], *, wait_ms: int = 0) -> None:
        """Go on elsewhere; the batch that is outstanding is forgotten. All or nothing; durable when it returns.

        Waits up to `wait_ms` for the assignment. Raises INVALID_RECORD_STATE with reason `not-assigned` for a
        partition that is not assigned, and OFFSET_OUT_OF_RANGE.
        """
        raise NotImplementedError

    async def pause(
        self, group_id: str, name: str, partitions: Sequence[TopicPartition] | None = None
    ) -> None:
        """Deliver nothing of these partitions (None: of any, also of those that come later).

        Raises INVALID_RECORD_STATE with reason `not-assigned`.
        """
        raise NotImplementedError

    async def resume(
        self, group_id: str, name: str, partitions: Sequence[TopicPartition] | None = None
    ) -> None:
        """Deliver again. Raises as `pause`."""
        raise NotImplementedError

    async def commit(
        self, group_id: str, name: str, offsets: Sequence[PartitionCommit] | None = None
    ) -> list[PartitionCommit]:
        """Commit these offsets, or (None) all that polls have delivered; what was committed, once durable.

        Raises what refuses it: INVALID_RECORD_STATE with reason `not-subscribed`, ILLEGAL_GENERATION,
        UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, REBALANCE_IN_PROGRESS, UNKNOWN_TOPIC_OR_PARTITION.
        """
        raise NotImplementedError

    def committed(
        self, group_id: str, name: str, partitions: Sequence[TopicPartition]
    ) -> list[CommittedOffset | None]:
        """The committed offset of each of `partitions` in the consumer's group; None where there is none."""
        raise NotImplementedError
