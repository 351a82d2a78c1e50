"""Offsets of a consumer instance: the committed ones of its group, and its position."""

from __future__ import annotations

from app.errors import Problem
from app.http.parameters import MAX_OFFSET, parse_moment
from app.http.request import Answer, Request
from app.rest_v2.bodies import (
    decoder_of,
    json_answer,
    no_content,
    query_of,
    read_json,
    read_optional_json,
)
from app.rest_v2.consumers import Instances
from app.rest_v2.errors import PARTITION_NOT_FOUND, ProxyError, unprocessable
from app.rest_v2.schemas import CommitOffsets, Committed, CommittedOffsets, Partitions, Timestamp
from app.rest_v2.schemas import Seek as SeekBody
from app.rest_v2.topics import partition_number
from core.errors import BrokerError, ErrorCode
from core.types import TopicPartition
from core.vocabulary.consumers import EARLIEST, LATEST, ConsumerInfo, PartitionCommit, Seek

_commit = decoder_of(CommitOffsets)
_partitions = decoder_of(Partitions)
_seek = decoder_of(SeekBody)


class OffsetRoutes:
    """The handlers of offsets and positions."""

    def __init__(self, instances: Instances) -> None:
        self._instances = instances

    # --- committed -----------------------------------------------------------------------------------------

    async def commit(self, request: Request, segments: list[str]) -> Answer:
        """Commit offsets.

        The body has the offset of the last record that was processed: the next one is stored. Without a body,
        everything that was delivered is committed.
        """
        self._instances.get(request, segments)
        body = await read_optional_json(request, _commit)
        given = None
        if body is not None:
            given = body.offsets if body.offsets is not None else body.partitions
        dialect = self._instances.dialect
        offsets = None
        if given is not None:
            offsets = [
                PartitionCommit(
                    one.topic, one.partition, one.offset + dialect.commit_adds, one.metadata or ""
                )
                for one in given
            ]
        if offsets is None or offsets:
            with self._instances.refusals():
                await self._instances.acting(request.scope).consumers.commit(
                    segments[1], segments[3], offsets
                )
        if not dialect.commit_body:
            return no_content()
        answer = json_answer(request, None)
        return answer._replace(status=dialect.commit_status, body=dialect.commit_body)

    async def committed(self, request: Request, segments: list[str]) -> Answer:
        """Return committed offsets.

        The query names one partition; a body `{partitions: [{topic, partition}]}` names several.
        """
        self._instances.get(request, segments)
        wanted = await self._wanted(request)
        await self._instances.acting(request.scope).look_at_group(segments[1])
        with self._instances.refusals():
            found = self._instances.acting(request.scope).consumers.committed(
                segments[1], segments[3], wanted
            )
        offsets = [
            Committed(tp.topic, tp.partition, one.offset, one.metadata or "")
            for tp, one in zip(wanted, found, strict=True)
            if one is not None
        ]
        return json_answer(request, CommittedOffsets(offsets))

    async def _wanted(self, request: Request) -> list[TopicPartition]:
        query = query_of(request)
        if "topic" in query and "partition" in query:
            return [TopicPartition(query["topic"], partition_number(query["partition"]))]
        body = await read_optional_json(request, _partitions)
        if body is None:
            raise ProxyError(
                404,
                PARTITION_NOT_FOUND,
                "Name the partitions: in a body {partitions}, or as ?topic=&partition=.",
            )
        return [TopicPartition(one.topic, one.partition) for one in body.partitions]

    # --- positions -----------------------------------------------------------------------------------------

    async def seek(self, request: Request, segments: list[str]) -> Answer:
        """Continue at offsets, or at times."""
        info = self._instances.get(request, segments)
        body = await read_json(request, _seek)
        if body.offsets is None and body.timestamps is None:
            raise unprocessable("The body needs offsets or timestamps.")
        seeks = [Seek(one.topic, one.partition, one.offset) for one in body.offsets or ()]
        seeks += [_to_moment(one) for one in body.timestamps or ()]
        return await self._seek(request, info, seeks)

    async def to_beginning(self, request: Request, segments: list[str]) -> Answer:
        """Continue at the beginning of partitions."""
        return await self._to_an_end(request, segments, EARLIEST)

    async def to_end(self, request: Request, segments: list[str]) -> Answer:
        """Continue at the end of partitions."""
        return await self._to_an_end(request, segments, LATEST)

    async def _to_an_end(self, request: Request, segments: list[str], to: str) -> Answer:
        info = self._instances.get(request, segments)
        body = await read_json(request, _partitions)
        # As the Kafka consumer has it: none named, all meant.
        wanted = body.partitions or info.partitions
        return await self._seek(request, info, [Seek(one.topic, one.partition, to) for one in wanted])

    async def _seek(self, request: Request, info: ConsumerInfo, seeks: list[Seek]) -> Answer:
        """Seek. A missing offset is replaced as `auto.offset.reset` says.

        A Kafka consumer finds that out at its next fetch, and does the same then.
        """
        try:
            await self._seek_now(request, info, seeks)
        except BrokerError as error:
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE or info.options.start not in (
                EARLIEST,
                LATEST,
            ):
                raise
            await self._seek_now(
                request, info, [await self._within(request, one, info.options.start) for one in seeks]
            )
        return no_content()

    async def _seek_now(self, request: Request, info: ConsumerInfo, seeks: list[Seek]) -> None:
        wait_ms = self._instances.wait_ms(info)
        with self._instances.refusals():
            await self._instances.acting(request.scope).consumers.seek(
                info.group_id, info.name, seeks, wait_ms=wait_ms
            )

    async def _within(self, request: Request, seek: Seek, reset: int | str) -> Seek:
        tp = TopicPartition(seek.topic, seek.partition)
        broker = self._instances.acting(request.scope)
        await broker.look(partitions=(tp,))
        start, high_watermark, _, _ = broker.partitions.info(tp).offsets
        if isinstance(seek.to, str) or seek.time_ms is not None or start <= seek.to <= high_watermark:
            return seek
        return seek._replace(to=reset)


def _to_moment(one: Timestamp) -> Seek:
    moment = one.timestamp
    if isinstance(moment, str):
        try:
            moment = parse_moment("timestamp", moment)
        except Problem as problem:
            raise unprocessable(problem.detail) from None
    if not 0 <= moment <= MAX_OFFSET:
        raise unprocessable(f"A timestamp lies between 0 and {MAX_OFFSET} milliseconds since 1970.")
    return Seek(one.topic, one.partition, time_ms=moment)
