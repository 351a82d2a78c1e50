"""Copy topics: create them, then rounds of fetch, plan, produce, until the target has what the source has.

A round takes what a fetch of all partitions gave, stores the plan of all batches in the journal with one fsync,
appends them, and takes the outcome into the next round's fsync. Batches of one partition are appended in order, with
up to five requests under way, under the producer and the sequence of their plan.

If it is not known whether a batch arrived (the process was killed, an answer was lost, the target says that the
sequence is wrong), the target's log is read from the end that the journal knows: a batch of the plan that is there is
recognized by its producer and sequence. Any other batch there was written by another client: the move stops, since
offsets could not be translated.

While it is copied a topic of the target keeps everything: settings that delete, compact or change records are held
back until `finish`. Otherwise the two logs could not be compared.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from core.client.metadata import TopicMetadata
from core.errors import BrokerError, ErrorCode
from core.move.batches import Piece, Run, after, pieces, stamp, whole_batches
from core.move.cluster import EARLIEST, LATEST, PATIENCE, FetchedPartition, MoveCluster
from core.move.journal import Journal, MovedTopic, Planned, Progress, runs_of_batches
from core.move.topic_settings import HELD, HELD_BEFORE_3_6, LEFT_OUT
from core.types import TopicPartition

log = logging.getLogger(__name__)

MIB = 1024 * 1024
# Bytes of one fetch, and of one partition in it.
FETCH_BYTES, PARTITION_BYTES = 32 * MIB, 4 * MIB
# Batches of one partition in one round: about a second if they are small. A signal waits for the end of a round.
ROUND_BATCHES = 500
# Requests under way for each partition: what an idempotent producer may have (KIP-98).
IN_FLIGHT = 5
# How long a round waits for records when all are copied.
FOLLOW_MS = 500
_WRONG_SEQUENCE = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    }
)


class MoveError(Exception):
    """The move has to stop: one or two sentences for the operator."""


class Lag(NamedTuple):
    """How far the copy of a partition is: the next offset of each log, and the source's last stable offset."""

    tp: TopicPartition
    source_next: int
    target_next: int
    source_end: int
    open_records: int


class CopyOptions(NamedTuple):
    """How topics are created: −1 is the target's default factor; `skipped` are settings to leave out."""

    replication_factor: int = -1
    skipped: frozenset[str] = frozenset()


class Copy:
    """A copy from one cluster to another, by a journal."""

    def __init__(
        self,
        source: MoveCluster,
        target: MoveCluster,
        journal: Journal,
        wanted: Callable[[str], bool],
        options: CopyOptions = CopyOptions(),  # noqa: B008 (frozen)
    ) -> None:
        self._source = source
        self._target = target
        self._journal = journal
        self._wanted = wanted
        self._options = options
        self._progress: dict[TopicPartition, Progress] = {}
        # Runs that are known and not stored yet.
        self._runs: dict[TopicPartition, list[Run]] = {}
        # The source's last stable offset and high watermark, as of the last fetch.
        self._ends: dict[TopicPartition, tuple[int, int]] = {}
        # Batches that were fetched, and belong to later rounds.
        self._fetched: dict[TopicPartition, list[Piece]] = {}
        # Records that this process has copied.
        self.copied = 0

    # --- topics --------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Take up the journal, create missing topics, settle what the last process left. Raises MoveError."""
        self._journal.belongs_to(self._source.cluster_id, self._target.cluster_id)
        if self._source.cluster_id == self._target.cluster_id:
            raise MoveError(f"Source and target are the same cluster, {self._source.cluster_id}.")
        self._progress = self._journal.progress()
        for tp, progress in self._progress.items():
            if progress.planned:
                await self._settle(tp)
        self._store({})
        await self.take_topics()

    async def take_topics(self) -> None:
        """Create what the source has and the target lacks: topics, and partitions of them."""
        there = {name: topic for name, topic in (await self._source.topics()).items() if self._wanted(name)}
        known = self._journal.topics()
        for name, moved in known.items():
            if self._wanted(name) and (name not in there or there[name].topic_id != moved.source_id):
                what = "deleted" if name not in there else "deleted and created again"
                raise MoveError(
                    f"Topic {name!r} of the source was {what} since the move began. Delete it on the target "
                    "and use another --work-dir, or leave it out with --topics."
                )
        new = sorted(there.keys() - known.keys())
        overrides = await self._source.overrides(new) if new else {}
        found = await self._target.topics()
        for name in new:
            found[name] = await self._create(there[name], overrides[name], found.get(name))
        known = self._journal.topics()
        for name, topic in there.items():
            await self._grow(topic, known[name], found.get(name))

    async def _create(
        self, topic: TopicMetadata, overrides: Mapping[str, str], found: TopicMetadata | None
    ) -> TopicMetadata:
        name, count = topic.name, len(topic.partitions)
        skipped = LEFT_OUT | self._options.skipped
        configs = {key: value for key, value in overrides.items() if key not in skipped}
        if found is None:
            await self._create_held(name, count, configs)
            found = await self._target.patient(lambda: self._created(name, count), topics=[name])
        tps = [TopicPartition(name, partition) for partition in range(len(found.partitions))]
        ends = await self._target.offsets(tps, LATEST)
        if len(tps) != count or any(ends.values()):
            why = f"has {len(tps)} partitions, not {count}" if len(tps) != count else "has records already"
            raise MoveError(
                f"Topic {name!r} of the target {why}, and the journal knows nothing of it. Delete it there, or "
                "leave it out with --topics."
            )
        self._journal.put_topic(MovedTopic(name, topic.topic_id, found.topic_id, configs, False))
        return found

    async def _created(self, name: str, count: int) -> TopicMetadata:
        found = await self._target.topic(name)
        if found is None or len(found.partitions) < count or any(one.leader < 0 for one in found.partitions):
            raise BrokerError(
                ErrorCode.LEADER_NOT_AVAILABLE, f"Topic {name!r} of the target has no leaders yet."
            )
        return found

    async def _create_held(self, name: str, count: int, configs: Mapping[str, str]) -> None:
        factor = self._options.replication_factor
        for held in (HELD, HELD_BEFORE_3_6):
            try:
                await self._target.create_topic(name, count, factor, {**configs, **held})
                return
            except BrokerError as error:
                if error.code is ErrorCode.TOPIC_ALREADY_EXISTS:
                    return
                unknown = error.code is ErrorCode.INVALID_CONFIG and held is HELD
                if not unknown or not any(
                    key in error.message for key in HELD.keys() - HELD_BEFORE_3_6.keys()
                ):
                    hint = (
                        " Leave a setting out with --skip-config."
                        if error.code is ErrorCode.INVALID_CONFIG
                        else ""
                    )
                    raise MoveError(f"{error.message}.{hint}") from None

    async def _grow(self, topic: TopicMetadata, moved: MovedTopic, found: TopicMetadata | None) -> None:
        """Add what partitions the target lacks, and begin with those that are new to the journal."""
        if found is None or (moved.target_id != found.topic_id and moved.target_id != UUID(int=0)):
            raise MoveError(
                f"Topic {topic.name!r} of the target was deleted, or created again, since the move began. Use "
                "another --work-dir to copy it again."
            )
        count = len(topic.partitions)
        if len(found.partitions) < count:
            await self._target.create_partitions(topic.name, count)
            await self._target.patient(lambda: self._created(topic.name, count), topics=[topic.name])
        tps = [TopicPartition(topic.name, partition) for partition in range(count)]
        begun = [tp for tp in tps if tp not in self._progress]
        if begun:
            starts = await self._source.offsets(begun, EARLIEST)
            fresh = {tp: Progress(starts[tp], starts[tp], 0) for tp in begun}
            self._journal.store({tp: (progress, ()) for tp, progress in fresh.items()})
            self._progress |= fresh

    # --- rounds --------------------------------------------------------------------------------------------

    async def until_caught_up(self, stopped: Callable[[], bool] = lambda: False) -> None:
        """Copy up to the last stable offsets that the source has now, or until `stopped` says so."""
        ends = await self._source.offsets(self._mine(), LATEST, committed=True)
        while left := [tp for tp in ends if self._progress[tp].source_next < ends[tp]]:
            if stopped():
                break
            await self.round(left, wait_ms=0)
        self.flush()

    async def round(self, tps: Sequence[TopicPartition] | None = None, *, wait_ms: int = FOLLOW_MS) -> int:
        """Append what was fetched, or fetch first; return the number of records. Raises MoveError."""
        if not self._fetched:
            await self._fetch(self._mine() if tps is None else tps, wait_ms)
        work: dict[TopicPartition, list[Piece]] = {}
        for tp, found in list(self._fetched.items()):
            work[tp], self._fetched[tp] = found[:ROUND_BATCHES], found[ROUND_BATCHES:]
            if not self._fetched[tp]:
                del self._fetched[tp]
        if not work:
            self._store({})
            return 0
        await self._name_producers(work)
        self._store({tp: self._plan(tp, found) for tp, found in work.items()})
        await asyncio.gather(*(self._append_all(tp, found) for tp, found in work.items()))
        return sum(piece.records for found in work.values() for piece in found)

    async def _fetch(self, tps: Sequence[TopicPartition], wait_ms: int) -> None:
        """Fetch once from all of these partitions."""
        fetched = await self._source.fetch(
            {tp: self._progress[tp].source_next for tp in tps},
            committed=True,
            wait_ms=wait_ms,
            max_bytes=FETCH_BYTES,
            partition_bytes=PARTITION_BYTES,
        )
        for tp, one in fetched.items():
            if not self._readable(tp, one):
                continue
            found = pieces(one.data, one.aborted, self._progress[tp].source_next)
            self._ends[tp] = (one.last_stable_offset, one.high_watermark)
            if found.pieces:
                self._fetched[tp] = found.pieces
            elif found.next_offset > self._progress[tp].source_next:
                # Markers and aborted records alone.
                self._progress[tp].source_next = found.next_offset
                self._runs.setdefault(tp, [])

    def _readable(self, tp: TopicPartition, one: FetchedPartition) -> bool:
        """Return whether a fetch gave batches. Records that retention deleted before they were copied are skipped."""
        if one.error is ErrorCode.NONE:
            return True
        progress = self._progress[tp]
        if one.error is not ErrorCode.OFFSET_OUT_OF_RANGE:
            raise MoveError(f"The source refuses to read {tp}: {one.error.name}.")
        if one.log_start_offset <= progress.source_next:
            raise MoveError(
                f"{tp} of the source ends before offset {progress.source_next}, up to which it was copied: the "
                "source has lost its end. Delete the topic on the target, and begin with another --work-dir."
            )
        log.warning(
            "%s: the source has deleted offsets %d to %d before they were copied",
            tp, progress.source_next, one.log_start_offset - 1,
        )  # fmt: skip
        progress.source_next = one.log_start_offset
        self._runs.setdefault(tp, [])
        return False

    def _mine(self) -> list[TopicPartition]:
        return [tp for tp in self._progress if self._wanted(tp.topic)]

    async def _name_producers(self, work: Mapping[TopicPartition, Sequence[Piece]]) -> None:
        nameless = [tp for tp in work if self._progress[tp].producer_id < 0]
        if nameless:
            producer_id, epoch = await self._target.producer()
            for tp in nameless:
                progress = self._progress[tp]
                progress.producer_id, progress.producer_epoch, progress.sequence = producer_id, epoch, 0

    def _plan(self, tp: TopicPartition, found: Sequence[Piece]) -> tuple[Planned, ...]:
        progress, planned = self._progress[tp], []
        sequence = progress.sequence
        for piece in found:
            stamp(piece.batch, progress.producer_id, progress.producer_epoch, sequence)
            planned.append(Planned(sequence, piece.records, piece.sources, piece.next_source))
            sequence = after(sequence, piece.records)
        return tuple(planned)

    def _store(self, plans: Mapping[TopicPartition, tuple[Planned, ...]]) -> None:
        """Store what is known and what is planned, with one fsync."""
        for tp, planned in plans.items():
            self._progress[tp].planned = planned
        changed = {tp: (self._progress[tp], self._runs.get(tp, ())) for tp in {*plans, *self._runs}}
        self._journal.store(changed)
        self._runs.clear()

    def flush(self) -> None:
        """Store the outcome of the last round."""
        self._store({})

    # --- one partition -------------------------------------------------------------------------------------

    async def _append_all(self, tp: TopicPartition, found: Sequence[Piece]) -> None:
        """Append the batches of a plan, in order. Raises MoveError."""
        now = self._target.client.clock.monotonic
        left, deadline, pause = list(found), now() + PATIENCE, 0.1
        # The first one alone: a target that has forgotten the producer takes any sequence for its first.
        window = 1
        while left:
            before = len(left)
            outcomes = await asyncio.gather(
                *(self._target.produce(tp, piece.batch) for piece in left[:window]), return_exceptions=True
            )
            failure = self._take(tp, outcomes)
            if failure is not None and failure.code in _WRONG_SEQUENCE:
                await self._resume(tp, failure)
            left = list(found[len(found) - len(self._progress[tp].planned) :])
            self._stamp_again(tp, left if failure is not None else ())
            if len(left) < before:
                deadline, pause = now() + PATIENCE, 0.1
            window = IN_FLIGHT if failure is None else 1
            if failure is None:
                continue
            if not (failure.code in _WRONG_SEQUENCE or failure.code.retriable) or now() + pause > deadline:
                raise MoveError(self._explained(tp, failure))
            await asyncio.sleep(pause)
            pause = min(pause * 2, 2.0)
            await self._target.patient(lambda: self._target.topic(tp.topic))

    def _take(self, tp: TopicPartition, outcomes: Sequence[int | BaseException]) -> BrokerError | None:
        """Note the batches that were appended, up to the first that was not; return its error."""
        for outcome in outcomes:
            if isinstance(outcome, BrokerError):
                return outcome
            if isinstance(outcome, BaseException):
                raise outcome
            progress = self._progress[tp]
            if outcome != progress.target_next:
                # −1 is a duplicate without its offset; anything else was written by another client.
                message = f"a batch was appended at {outcome}, not at {progress.target_next}"
                return BrokerError(ErrorCode.DUPLICATE_SEQUENCE_NUMBER, message)
            self._done(tp, 1)
        return None

    def _done(self, tp: TopicPartition, count: int) -> None:
        """The first `count` planned batches are in the target."""
        progress = self._progress[tp]
        for planned in progress.planned[:count]:
            self._runs.setdefault(tp, []).extend(runs_of_batches([planned], progress.target_next))
            progress.target_next += planned.count
            self.copied += planned.count
            progress.sequence = after(planned.sequence, planned.count)
            progress.source_next = planned.next_source
        progress.planned = progress.planned[count:]

    async def _resume(self, tp: TopicPartition, failure: BrokerError) -> None:
        """Find out what of the plan the target has; if that is nothing new, continue under another producer."""
        progress = self._progress[tp]
        before = len(progress.planned)
        await self._settle(tp)
        if len(progress.planned) < before or not progress.planned:
            return
        log.warning("%s: %s; the move continues under a new producer id", tp, failure.message)
        producer_id, epoch = await self._target.producer()
        progress.producer_id, progress.producer_epoch, progress.sequence = producer_id, epoch, 0
        sequence, planned = 0, []
        for one in progress.planned:
            planned.append(Planned(sequence, one.count, one.sources, one.next_source))
            sequence = after(sequence, one.count)
        self._store({tp: tuple(planned)})

    def _stamp_again(self, tp: TopicPartition, left: Sequence[Piece]) -> None:
        progress = self._progress[tp]
        for piece, planned in zip(left, progress.planned, strict=False):
            stamp(piece.batch, progress.producer_id, progress.producer_epoch, planned.sequence)

    async def _settle(self, tp: TopicPartition) -> None:
        """Read the target from where the journal knows it; take the planned batches that are there."""
        progress = self._progress[tp]
        end = (await self._target.offsets([tp], LATEST))[tp]
        if end < progress.target_next:
            raise MoveError(
                f"{tp} of the target ends at {end}, but the move has written it up to {progress.target_next}: "
                "the target has lost acknowledged records, or the topic was created again."
            )
        while progress.target_next < end:
            fetched = await self._target.fetch(
                {tp: progress.target_next},
                committed=False,
                max_bytes=PARTITION_BYTES,
                partition_bytes=PARTITION_BYTES,
            )
            if tp not in fetched:
                continue
            one = fetched[tp]
            if one.error is not ErrorCode.NONE:
                raise MoveError(f"The target refuses to read {tp}: {one.error.name}.")
            for header, _ in whole_batches(one.data):
                if header.next_offset <= progress.target_next:
                    continue
                planned = progress.planned[0] if progress.planned else None
                mine = planned is not None and (
                    header.producer_id, header.producer_epoch, header.base_sequence, header.record_count
                ) == (progress.producer_id, progress.producer_epoch, planned.sequence, planned.count)  # fmt: skip
                if not mine or header.base_offset != progress.target_next:
                    raise MoveError(
                        f"{tp} of the target has a batch at offset {header.base_offset} that this move has not "
                        "written. While topics are copied, no other client may write to them: offsets could not be "
                        "translated."
                    )
                self._done(tp, 1)

    def _explained(self, tp: TopicPartition, error: BrokerError) -> str:
        hints = {
            ErrorCode.MESSAGE_TOO_LARGE: f" Raise max.message.bytes of topic {tp.topic!r} on the target.",
            ErrorCode.TOPIC_AUTHORIZATION_FAILED: " The user of --to-config needs WRITE on the topic.",
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED: " The user of --to-config needs IDEMPOTENT_WRITE on the cluster.",
        }
        return f"{error.message}.{hints.get(error.code, '')}"

    # --- reports -------------------------------------------------------------------------------------------

    def lags(self) -> list[Lag]:
        """Return how far each partition is, as of the last fetch of it."""
        found = []
        for tp in sorted(self._mine()):
            progress = self._progress[tp]
            stable, high = self._ends.get(tp, (progress.source_next, progress.source_next))
            stable = max(stable, progress.source_next)
            found.append(Lag(tp, progress.source_next, progress.target_next, stable, max(0, high - stable)))
        return found
