"""Committed offsets of the cluster's groups: OffsetFetch, OffsetCommit, OffsetDelete, and what is at hand of them.

At hand is what was fetched, and what this gateway has committed since. Another client may have committed meanwhile:
a caller that needs the newest offset fetches it first.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Sequence
from weakref import WeakValueDictionary

from core.client.cluster import ClusterClient
from core.client.failures import error_code
from core.errors import BrokerError, ErrorCode
from core.groups.refusals import refusal
from core.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from core.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from core.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from core.types import TopicPartition
from core.vocabulary.groups import NO_MEMBER, Commit, CommitRequest, CommittedOffset

# Groups whose offsets are remembered; the least recently used are dropped.
MAX_GROUPS = 10_000
# How long a commit or a fetch is tried again while the coordinator moves: an HTTP client waits for it.
PATIENCE_MS = 10_000
# OffsetFetch with `require_stable` came with version 7 (KIP-447); a transaction that holds an offset ends soon.
_UNSTABLE_SECONDS = 0.2


class _Known:
    """What is at hand of one group. `complete`: partitions that are missing have no committed offset."""

    __slots__ = ("complete", "offsets")

    def __init__(self) -> None:
        self.offsets: dict[TopicPartition, CommittedOffset | None] = {}
        self.complete = False


class RemoteOffsets:
    """The committed offsets of all groups of the cluster."""

    def __init__(self, cluster: ClusterClient) -> None:
        self._cluster = cluster
        self._known: OrderedDict[str, _Known] = OrderedDict()
        # Commits of one member are sent one after the other: a repeated one must not undo a later one.
        self._turns: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

    # --- at hand -------------------------------------------------------------------------------------------

    def get(self, group_id: str, tp: TopicPartition) -> CommittedOffset | None:
        """Return the committed offset; None if there is none. Raises COORDINATOR_LOAD_IN_PROGRESS if not at hand."""
        known = self._known.get(group_id)
        if known is not None and (tp in known.offsets or known.complete):
            return known.offsets.get(tp)
        raise BrokerError(
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            f"The committed offset of group {group_id!r} in {tp} is not known here yet; try again.",
            group=group_id,
        )

    def of_group(self, group_id: str) -> Iterator[tuple[str, int, CommittedOffset]]:
        """Yield (topic, partition, committed offset) of what is at hand."""
        known = self._known.get(group_id)
        if known is None:
            return
        for tp, committed in sorted(known.offsets.items()):
            if committed is not None:
                yield tp.topic, tp.partition, committed

    def forget(self, group_id: str) -> None:
        """Forget what is at hand of a group."""
        self._known.pop(group_id, None)

    def _of(self, group_id: str) -> _Known:
        known = self._known.get(group_id)
        if known is None:
            known = self._known[group_id] = _Known()
            if len(self._known) > MAX_GROUPS:
                self._known.popitem(last=False)
        else:
            self._known.move_to_end(group_id)
        return known

    # --- fetch ---------------------------------------------------------------------------------------------

    async def look(self, group_id: str) -> None:
        """Bring all committed offsets of a group to hand. Raises BrokerError."""
        found = await self._fetch(group_id, None, stable=False)
        known = self._of(group_id)
        # OffsetFetch does not tell when an offset was committed. It is known of commits that went through here.
        for tp, committed in found.items():
            before = known.offsets.get(tp)
            if before is not None and committed is not None and before.offset == committed.offset:
                found[tp] = committed._replace(commit_ms=before.commit_ms)
        known.offsets, known.complete = found, True

    async def bring(self, group_id: str, partitions: Collection[TopicPartition], *, fresh: bool) -> None:
        """Bring the committed offsets of partitions to hand, from the cluster if `fresh`. Raises BrokerError.

        Offsets that an open transaction holds are waited for, so that no record is read again after it.
        """
        known = self._of(group_id)
        missing = [tp for tp in partitions if fresh or not (tp in known.offsets or known.complete)]
        if missing:
            found = await self._fetch(group_id, missing, stable=True)
            self._of(group_id).offsets.update({tp: found.get(tp) for tp in missing})

    async def _fetch(
        self, group_id: str, partitions: Collection[TopicPartition] | None, *, stable: bool
    ) -> dict[TopicPartition, CommittedOffset | None]:
        clock = self._cluster.clock
        deadline = clock.monotonic() + PATIENCE_MS / 1000
        while True:
            answer: OffsetFetchResponse = await self._cluster.ask_coordinator(
                group_id, _fetch_request(group_id, partitions, stable), patience_ms=PATIENCE_MS
            )
            found, refused = _fetched(answer)
            if refused is ErrorCode.NONE:
                return found
            if refused is not ErrorCode.UNSTABLE_OFFSET_COMMIT or clock.monotonic() >= deadline:
                raise refusal(refused, group_id)
            await asyncio.sleep(_UNSTABLE_SECONDS)

    # --- commit --------------------------------------------------------------------------------------------

    async def commit(self, group_id: str, request: CommitRequest) -> list[ErrorCode]:
        """OffsetCommit: return an error for each commit, in their order.

        A commit whose answer is lost is sent again: within a generation that changes nothing. Raises BrokerError if
        the coordinator cannot be reached.
        """
        turn = self._turns.setdefault((group_id, request.member_id), asyncio.Lock())
        if request.member_id == NO_MEMBER:
            return await self._commit(group_id, request)
        async with turn:
            return await self._commit(group_id, request)

    async def _commit(self, group_id: str, request: CommitRequest) -> list[ErrorCode]:
        topics: dict[str, OffsetCommitRequestTopic] = {}
        for one in request.commits:
            topic = topics.setdefault(one.topic, OffsetCommitRequestTopic(name=one.topic, partitions=[]))
            topic.partitions.append(
                OffsetCommitRequestPartition(
                    partition_index=one.partition,
                    committed_offset=one.offset,
                    committed_leader_epoch=one.leader_epoch,
                    commit_timestamp=one.commit_ms,
                    committed_metadata=one.metadata,
                )
            )
        wanted = OffsetCommitRequest(
            group_id=group_id,
            generation_id_or_member_epoch=request.generation,
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            retention_time_ms=request.retention_ms,
            topics=list(topics.values()),
        )
        answer: OffsetCommitResponse = await self._cluster.ask_coordinator(
            group_id, wanted, patience_ms=PATIENCE_MS
        )
        errors = {
            TopicPartition(topic.name, one.partition_index): error_code(one.error_code)
            for topic in answer.topics
            for one in topic.partitions
        }
        results = [
            errors.get(TopicPartition(one.topic, one.partition), ErrorCode.UNKNOWN_SERVER_ERROR)
            for one in request.commits
        ]
        if request.member_id != NO_MEMBER:
            # From version 9 on, a member of a group that was deleted gets this.
            missing = ErrorCode.GROUP_ID_NOT_FOUND
            results = [ErrorCode.UNKNOWN_MEMBER_ID if error is missing else error for error in results]
        now = self._cluster.clock.wall_ms()
        offsets = self._of(group_id).offsets
        for one, error in zip(request.commits, results, strict=True):
            if error is ErrorCode.NONE:
                committed = CommittedOffset(one.offset, one.leader_epoch, one.metadata or "", now, -1)
                offsets[TopicPartition(one.topic, one.partition)] = committed
        return results

    async def put(self, group_id: str, request: CommitRequest) -> list[ErrorCode]:
        """Commit as a member. A cluster may accept some of the commits and refuse others."""
        return await self.commit(group_id, request)

    async def put_by_hand(self, group_id: str, commits: Sequence[Commit]) -> list[ErrorCode]:
        """Commit in a group without members; NON_EMPTY_GROUP if it has some."""
        results = await self.commit(group_id, CommitRequest(commits))
        members = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)
        return [ErrorCode.NON_EMPTY_GROUP if error in members else error for error in results]

    # --- delete --------------------------------------------------------------------------------------------

    async def delete(self, group_id: str, partitions: Sequence[tuple[str, int]]) -> list[ErrorCode]:
        """OffsetDelete: return an error for each of `partitions`, in their order."""
        topics: dict[str, OffsetDeleteRequestTopic] = {}
        for name, partition in partitions:
            topic = topics.setdefault(name, OffsetDeleteRequestTopic(name=name, partitions=[]))
            topic.partitions.append(OffsetDeleteRequestPartition(partition_index=partition))
        wanted = OffsetDeleteRequest(group_id=group_id, topics=list(topics.values()))
        answer: OffsetDeleteResponse = await self._cluster.ask_coordinator(
            group_id, wanted, patience_ms=PATIENCE_MS
        )
        self.forget(group_id)
        if answer.error_code:
            return [error_code(answer.error_code)] * len(partitions)
        errors = {
            (topic.name, one.partition_index): error_code(one.error_code)
            for topic in answer.topics
            for one in topic.partitions
        }
        return [errors.get(one, ErrorCode.UNKNOWN_SERVER_ERROR) for one in partitions]


def _fetch_request(
    group_id: str, partitions: Iterable[TopicPartition] | None, stable: bool
) -> OffsetFetchRequest:
    """Return OffsetFetch of one group in the form of all versions; None is all partitions."""
    named: dict[str, list[int]] = {}
    for topic, partition in partitions or ():
        named.setdefault(topic, []).append(partition)
    older = [OffsetFetchRequestTopic(name=t, partition_indexes=p) for t, p in named.items()]
    newer = [OffsetFetchRequestTopics(name=t, partition_indexes=p) for t, p in named.items()]
    everything = partitions is None
    return OffsetFetchRequest(
        group_id=group_id,
        topics=None if everything else older,
        groups=[OffsetFetchRequestGroup(group_id=group_id, topics=None if everything else newer)],
        require_stable=stable,
    )


def _fetched(
    answer: OffsetFetchResponse,
) -> tuple[dict[TopicPartition, CommittedOffset | None], ErrorCode]:
    """Return the offsets of an answer, and the first error in it."""
    whole = answer.groups[0] if answer.groups else answer
    refused = error_code(whole.error_code)
    found: dict[TopicPartition, CommittedOffset | None] = {}
    for topic in whole.topics:
        for one in topic.partitions:
            tp, error = TopicPartition(topic.name, one.partition_index), error_code(one.error_code)
            if error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                found[tp] = None
            elif error:
                refused = refused or error
            elif one.committed_offset < 0:
                found[tp] = None
            else:
                metadata = one.metadata or ""
                found[tp] = CommittedOffset(
                    one.committed_offset, one.committed_leader_epoch, metadata, -1, -1
                )
    return found, refused
