"""Fetch requests for many windows, and what the answers say of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from core.client.cluster import ClusterClient
from core.client.failures import error_code, refused
from core.client.windows import Chunk, Window, chunk_of
from core.errors import BrokerError, ErrorCode
from core.protocol.apis import APIS, FETCH
from core.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from core.protocol.primitives import NIL
from core.protocol.traits import names_topics_by_id
from core.types import LogOffsets


class Got(NamedTuple):
    """What a fetch said of one window: its bounds and perhaps batches, or the error.

    `diverged`: the log was cut below the offset asked for (KIP-320).
    """

    window: Window
    asked: int
    offsets: LogOffsets | None
    chunk: Chunk | None
    error: BrokerError | None = None
    diverged: bool = False


class Ask(NamedTuple):
    """One fetch of a broker: offsets by window. All windows have the same isolation level."""

    broker_id: int
    offsets: Mapping[Window, int]
    wait_ms: int
    partition_bytes: int
    max_bytes: int
    lane: str
    # Follow: the leader checks the epoch of the last batch.
    following: bool


async def fetch(cluster: ClusterClient, ask: Ask) -> tuple[list[Got], int]:
    """Send one Fetch; return what it said of each window, and for how many ms the broker wants silence.

    Raises LinkLost, and what a login raises.
    """
    link = await cluster.link(ask.broker_id, ask.lane)
    newest = APIS[FETCH].max_version
    by_id = names_topics_by_id(FETCH, link.version(FETCH, newest)) and all(
        window.topic_id != NIL for window in ask.offsets
    )
    request = _request(cluster, ask)
    timeout_ms = ask.wait_ms + cluster.settings.request_timeout_ms
    answer: FetchResponse = await link.call(request, timeout_ms=timeout_ms, newest=newest if by_id else None)
    return list(_answers(cluster, ask, answer)), answer.throttle_time_ms


def _request(cluster: ClusterClient, ask: Ask) -> FetchRequest:
    topics: dict[str, FetchTopic] = {}
    committed = False
    for window, offset in ask.offsets.items():
        committed = window.committed
        tp = window.tp
        topic = topics.get(tp.topic)
        if topic is None:
            topic = topics[tp.topic] = FetchTopic(tp.topic, window.topic_id, [])
        known = cluster.topics.get(tp.topic)
        partition = None if known is None else known.partition(tp.partition)
        topic.partitions.append(
            FetchPartition(
                partition=tp.partition,
                current_leader_epoch=-1 if partition is None else partition.leader_epoch,
                fetch_offset=offset,
                last_fetched_epoch=window.last_epoch if ask.following and window.end == offset else -1,
                partition_max_bytes=ask.partition_bytes,
            )
        )
    return FetchRequest(
        max_wait_ms=ask.wait_ms,
        min_bytes=1,
        max_bytes=ask.max_bytes,
        isolation_level=int(committed),
        topics=list(topics.values()),
    )


def _answers(cluster: ClusterClient, ask: Ask, answer: FetchResponse) -> Iterator[Got]:
    if answer.error_code:
        error = refused(answer.error_code, f"Fetch at broker {ask.broker_id}")
        yield from (Got(window, offset, None, None, error) for window, offset in ask.offsets.items())
        return
    by_name: dict[tuple[object, int], Window] = {}
    for window in ask.offsets:
        by_name[window.tp.topic, window.tp.partition] = window
        if window.topic_id != NIL:
            by_name[window.topic_id, window.tp.partition] = window
    for topic in answer.responses:
        name: object = topic.topic or topic.topic_id
        for one in topic.partitions:
            found = by_name.get((name, one.partition_index))
            if found is None:
                continue
            if one.error_code:
                leader = one.current_leader
                cluster.learn_leader(found.tp, leader.leader_id, leader.leader_epoch, answer.node_endpoints)
            yield _got(found, ask.offsets[found], one)


def _got(window: Window, asked: int, one: PartitionData) -> Got:
    if one.error_code:
        return Got(window, asked, None, None, refused(one.error_code, f"Fetch of {window.tp}"))
    if one.diverging_epoch.end_offset >= 0:
        return Got(window, asked, None, None, diverged=True)
    high = one.high_watermark
    start, stable = max(one.log_start_offset, 0), one.last_stable_offset
    if stable < 0:
        # Not told. A read_committed answer has no records beyond it; of others only the lower bound is known.
        stable = high if window.committed else start
    offsets = LogOffsets(start, high, high, stable)
    aborted: Sequence[tuple[int, int]] = [
        (entry.producer_id, entry.first_offset) for entry in one.aborted_transactions or ()
    ]
    data = one.records
    if not isinstance(data, bytes | bytearray | memoryview) or not len(data):
        return Got(window, asked, offsets, None)
    try:
        return Got(window, asked, offsets, chunk_of(asked, memoryview(data), aborted))
    except BrokerError as error:
        return Got(window, asked, offsets, None, error)


# The topic is another one, or none.
UNKNOWN = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)


def unknown(error: BrokerError) -> bool:
    """Return whether an error says that the metadata of the topic must be read again."""
    return error_code(error.code) in UNKNOWN
