"""Writes under idempotency keys to the cluster: the plan is in the local store before the first Produce request.

Theory. The batches of a plan have a producer id, an epoch and a sequence number of their own. The leader recognizes a
batch that it has and answers with its offset. So a retry sends the same batches again, whenever it comes, and the
local store needs no place of a batch. Writes are acks=all always: a record that a leader alone has may be lost with
it, and its offset then belongs to another record.

A leader forgets an idle producer after `producer.id.expiration.ms` (a day), and then takes any sequence number: a
late retry would append a second time. So before a plan is carried out again that late, the log is searched for its
batches, from the end that was noted in the plan.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from core.client.cluster import ClusterClient
from core.client.failures import error_code, refused
from core.client.links import FETCH
from core.client.producer import Producer
from core.config import MIB
from core.errors import BrokerError, ErrorCode
from core.facade import Logs
from core.idempotency.plan import EPOCH, Part, Place, Places, Plan, indexes_of
from core.idempotency.plan_writer import Run, fill_results
from core.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from core.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from core.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from core.records.batch import batches, build_batch
from core.records.record import NewRecord
from core.types import TopicPartition
from core.vocabulary.records import UNDONE, ProduceResult, refuse_batch

log = logging.getLogger(__name__)

# `details["reason"]` of the BrokerError when a late retry can neither be answered nor carried out.
KEY_UNSETTLED = "key-unsettled"
_EXPIRATION = "producer.id.expiration.ms"
_DAY_MS, _HOUR_MS = 86_400_000, 3_600_000
# The setting of the brokers is read again after this time.
_EXPIRATION_AGE_SECONDS = 600.0
# Bytes that a late retry searches at most, and bytes of one request.
_MOST_SEARCHED, _FETCH_BYTES = 256 * MIB, 4 * MIB
_BROKER_RESOURCE = 4
_LEAST_TIMEOUT_MS = 500
# Attempts to get a producer id, while its coordinator starts.
_ATTEMPTS = 10
# The leader does not take the next sequence number of a producer: its log has lost what came before.
_SPENT = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)


class RemoteProducerIds:
    """Producer ids of the cluster."""

    def __init__(self, cluster: ClusterClient) -> None:
        self._cluster = cluster

    async def next(self) -> int:
        """Return a producer id that no producer has had, at epoch 0. Raises BrokerError."""
        for attempt in range(_ATTEMPTS):
            answer: InitProducerIdResponse = await self._cluster.ask_any(InitProducerIdRequest())
            error = error_code(answer.error_code)
            if not error:
                return answer.producer_id
            if not error.retriable:
                break
            await self._cluster.pause(attempt)
        raise refused(answer.error_code, "InitProducerId")


class RemotePlanWriter:
    """Writes the batches of plans to the cluster; see `core.idempotency.plan_writer.Writer`."""

    def __init__(self, broker: Logs, cluster: ClusterClient, producer: Producer) -> None:
        self._broker = broker
        self._cluster = cluster
        self._producer = producer
        # What the brokers say of `producer.id.expiration.ms`, and when they were asked.
        self._expiration_ms = _DAY_MS
        self._asked = float("-inf")

    async def prepare(self, topic: str, plan: Plan) -> Plan:
        """Note the ends of the partitions in a plan. An older end will do: a search begins there."""
        tps = [TopicPartition(topic, part.partition) for part in plan.parts]
        ends = {tp: self._end(tp) for tp in tps}
        if missing := [tp for tp, end in ends.items() if end < 0]:
            await self._broker.look(partitions=missing)
            ends.update({tp: self._end(tp) for tp in missing})
        return Plan(
            plan.topic_id,
            plan.partitions,
            plan.sticky,
            plan.now_ms,
            plan.parts,
            tuple(ends[tp] for tp in tps),
        )

    def _end(self, tp: TopicPartition) -> int:
        try:
            return self._broker.partitions.offsets(tp).high_watermark
        except BrokerError:
            return -1

    async def append(
        self, topic: str, records: Sequence[NewRecord], acks: int, plan: Plan, places: Places
    ) -> Run:
        """Append the batches that have no place yet, acks=all, and note their places.

        The batches of one partition are sent one after the other, so that the records keep their order.
        """
        results: list[ProduceResult] = [UNDONE] * len(records)
        appended, settled = False, True
        spent: set[int] = set()
        rounds: dict[int, list[tuple[int, Part, Sequence[int]]]] = {}
        turns: dict[int, int] = {}
        for number, (part, indexes) in enumerate(indexes_of(self._broker, topic, plan, records)):
            turn = turns[part.partition] = turns.get(part.partition, -1) + 1
            rounds.setdefault(turn, []).append((number, part, indexes))
        timeout_ms = await self._timeout_ms(plan)
        for wave in rounds.values():
            sent = [
                self._append_part(
                    topic, plan, part, [records[index] for index in indexes], places[number], timeout_ms
                )
                for number, part, indexes in wave
            ]
            for (number, part, indexes), done in zip(wave, await asyncio.gather(*sent), strict=True):
                if isinstance(done, BrokerError):
                    refuse_batch(results, indexes, part.partition, done)
                    if done.code in _SPENT:
                        spent.add(part.producer_id)
                    elif done.code.retriable or done.code is ErrorCode.UNKNOWN_SERVER_ERROR:
                        settled = settled and self._lacks(topic, part.partition)
                    continue
                place, new = done
                appended = appended or new
                places[number] = place
                fill_results(results, part, place, plan.now_ms, records, indexes)
        return Run(results, appended, settled, spent=spent)

    def _lacks(self, topic: str, partition: int) -> bool:
        """Return whether the topic has no such partition: then no log can have the batch."""
        try:
            return partition >= self._broker.topics.get(topic).partitions
        except BrokerError:
            return False

    async def _timeout_ms(self, plan: Plan) -> int:
        """Return for how long a batch may be sent again: never so long that the leader has forgotten its producer."""
        left = await self._safe_age_ms() - (self._broker.clock.wall_ms() - plan.now_ms)
        if left <= 0:
            # The log was searched just now: the batch is sent as for the first time.
            left = self._expiration_ms // 2
        return min(self._cluster.settings.delivery_timeout_ms, max(left, _LEAST_TIMEOUT_MS))

    async def _append_part(
        self,
        topic: str,
        plan: Plan,
        part: Part,
        records: Sequence[NewRecord],
        place: Place | None,
        timeout_ms: int,
    ) -> tuple[Place, bool] | BrokerError:
        """Return the place of a batch, and whether it was appended now."""
        if place is not None:
            return place, False
        tp = TopicPartition(topic, part.partition)
        # What is appended now cannot lie below the high watermark: the leader had that batch.
        end = self._end(tp)
        try:
            batch = build_batch(
                records,
                now_ms=plan.now_ms,
                producer_id=part.producer_id,
                producer_epoch=EPOCH,
                base_sequence=part.base_sequence,
            )
            done = await self._producer.append(tp, batch, acks=-1, timeout_ms=timeout_ms)
        except BrokerError as error:
            return error
        new = done.base_offset >= end and not done.duplicate
        return Place(done.base_offset, done.log_append_time), new

    # --- late retries --------------------------------------------------------------------------------------

    async def find(self, topic: str, plan: Plan, places: Places) -> None:
        """Search the batches of a plan that is older than the brokers remember producers.

        For younger plans bring the high watermarks to hand: they show which batches a leader has already.
        Raises INVALID_REQUEST with reason "key-unsettled" if there is too much to search, or if retention has deleted
        records from there.
        """
        age_ms = self._broker.clock.wall_ms() - plan.now_ms
        if age_ms < await self._safe_age_ms():
            missing = [
                part.partition for part, place in zip(plan.parts, places, strict=True) if place is None
            ]
            await self._broker.look(partitions=[TopicPartition(topic, partition) for partition in missing])
            return
        for number, part in enumerate(plan.parts):
            if places[number] is None:
                end = plan.ends[number] if number < len(plan.ends) else -1
                places[number] = await self._search(TopicPartition(topic, part.partition), part, end)

    async def find_after_crash(self, plan: Plan, places: Places) -> None:
        """Do nothing: the leader recognizes the batches when the client repeats its request."""

    async def _safe_age_ms(self) -> int:
        """Return for how long a retry may be sent without a search."""
        now = self._cluster.clock.monotonic()
        if now - self._asked > _EXPIRATION_AGE_SECONDS:
            self._expiration_ms = await self._ask_expiration() or self._expiration_ms
            self._asked = now
        # The request itself takes time, and clocks differ.
        return self._expiration_ms - min(_HOUR_MS, self._expiration_ms // 2)

    async def _ask_expiration(self) -> int | None:
        """Return the setting of a broker; None if this gateway may not read it."""
        broker_id = next(iter(self._cluster.brokers), -1)
        resource = DescribeConfigsResource(
            resource_type=_BROKER_RESOURCE, resource_name=str(broker_id), configuration_keys=[_EXPIRATION]
        )
        try:
            answer: DescribeConfigsResponse = await self._cluster.ask(
                broker_id, DescribeConfigsRequest(resources=[resource])
            )
            values = [one.value for result in answer.results for one in result.configs]
            return int(values[0] or "")
        except (BrokerError, IndexError, ValueError):
            return None

    async def _search(self, tp: TopicPartition, part: Part, end: int) -> Place | None:
        """Return the place of a batch that lies at `end` or later; None if the log does not have it."""
        await self._broker.look(partitions=(tp,))
        bounds = self._broker.partitions.offsets(tp)
        if end < 0 or bounds.log_start_offset > end:
            raise _unsettled(tp, "records from then are deleted, or it is not known where to search")
        searched, offset = 0, end
        while offset < bounds.high_watermark:
            if searched > _MOST_SEARCHED:
                raise _unsettled(tp, f"more than {_MOST_SEARCHED // MIB} MiB were appended since")
            data = await self._fetch(tp, offset)
            searched += max(len(data), 1)
            before = offset
            for _, header in batches(data, 0, _whole(data)):
                if header.producer_id == part.producer_id and header.base_sequence == part.base_sequence:
                    by_broker = bool(header.attributes & 0x08)
                    return Place(header.base_offset, header.max_timestamp if by_broker else -1)
                offset = max(offset, header.base_offset + header.last_offset_delta + 1)
            if offset == before:
                # What is left up to the high watermark was compacted.
                break
        return None

    async def _fetch(self, tp: TopicPartition, offset: int) -> bytes:
        one = FetchPartition(partition=tp.partition, fetch_offset=offset, partition_max_bytes=_FETCH_BYTES)
        topic = FetchTopic(topic=tp.topic, partitions=[one])
        request = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=_FETCH_BYTES, topics=[topic])
        leader = self._cluster.leader(tp)
        answer: FetchResponse = await self._cluster.ask(leader, request, lane=FETCH)
        (found,) = [one for topic in answer.responses for one in topic.partitions]
        if found.error_code:
            raise refused(found.error_code, f"Fetch of {tp}")
        return bytes(found.records or b"")  # type: ignore[arg-type]


def _whole(data: bytes) -> int:
    """Return where the last whole batch ends: a Fetch may cut the one after it."""
    position = 0
    while position + 12 <= len(data):
        size = int.from_bytes(data[position + 8 : position + 12], "big") + 12
        if position + size > len(data):
            break
        position += size
    return position


def _unsettled(tp: TopicPartition, why: str) -> BrokerError:
    return BrokerError(
        ErrorCode.INVALID_REQUEST,
        f"The first request with this idempotency key is so old that the cluster may have forgotten it, and {tp} "
        f"cannot be searched for it: {why}. Look at the topic, then use another key.",
        reason=KEY_UNSETTLED,
        topic=tp.topic,
        partition=tp.partition,
    )
