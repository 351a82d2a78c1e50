"""Record batches of a cluster for many readers: one long poll for each leader, windows that all readers share.

`bring` fetches batches once for all readers of the same offset. A partition that was read to its end is followed from
then on (`core.client.following`), so that new batches are at hand without a question. All batches together take
`fetch_memory` at most; those that were not read for the longest time are dropped first. A window is dropped if it was
not read for `fetch_idle_ms`, if its topic was deleted or made again, and if its log was cut (KIP-320).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from core.client.cluster import ClusterClient
from core.client.fetching import Ask, Got, fetch, unknown
from core.client.following import LeaderPoll
from core.client.leaders import MOVED
from core.client.offsets import EARLIEST, LATEST, list_offsets
from core.client.windows import Stretch, Window, Windows
from core.errors import BrokerError, ErrorCode
from core.types import LogOffsets, TimestampOffset, TopicPartition

__all__ = ["Fetcher", "Stretch"]

_LANE = "read"
# Fetches of one broker that bring batches to hand at the same time.
_AT_ONCE = 4
_TIDY_SECONDS = 5.0
_NOTHING = memoryview(b"")
# A fetch of fewer bytes is not cheaper, and other readers will want what follows.
_LEAST_BYTES = 64 * 1024

Arrived = Callable[[TopicPartition], None]


class _Want:
    """An offset that readers wait for."""

    __slots__ = ("future", "max_bytes")

    def __init__(self, future: asyncio.Future[Got], max_bytes: int) -> None:
        self.future = future
        self.max_bytes = max_bytes


class Fetcher:
    """Windows of batches. `arrived` is called with a partition that has new records, or whose bounds have changed.

    A partition that was read at its end is followed: what is appended arrives without a question, until nothing has
    read it for `fetch_idle_ms`.
    """

    def __init__(self, cluster: ClusterClient, arrived: Arrived = lambda tp: None) -> None:
        self._cluster = cluster
        self._settings = cluster.settings
        self._arrived = arrived
        self._loop = asyncio.get_running_loop()
        self._windows = Windows(cluster.settings.fetch_memory)
        self._polls: dict[tuple[int, bool], LeaderPoll] = {}
        # By leader and isolation level: what the next fetch asks for.
        self._wants: dict[tuple[int, bool], dict[Window, dict[int, _Want]]] = {}
        self._fetching: dict[tuple[int, bool], int] = {}
        # Windows to be followed whose leader is not known.
        self._homeless: dict[Window, None] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._finding = False
        self._closed = False
        self._tidier = self._loop.call_later(_TIDY_SECONDS, self._tidy)

    @property
    def memory(self) -> int:
        """Return the bytes that the windows take."""
        return self._windows.size

    @property
    def partitions(self) -> int:
        """Return the number of windows: partitions that are read, once for each isolation level."""
        return len(self._windows)

    # --- for readers ---------------------------------------------------------------------------------------

    def at_hand(
        self, tp: TopicPartition, offset: int, *, max_bytes: int, committed: bool = True
    ) -> Stretch | None:
        """Return batches from `offset` on without waiting; None if they are not at hand: `bring` them.

        An empty stretch means that `offset` is the end of a followed partition. The batches are those of one chunk:
        ask again from `next_offset` on for more. The first batch comes whole, however large. `committed`: as
        read_committed does, up to the last stable offset.
        """
        window = self._windows.get(tp, committed)
        if window is None or window.offsets is None:
            return None
        if self._outdated(window):
            self._windows.drop(window)
            return None
        window.used = self._loop.time()
        if offset == window.end:
            return Stretch(_NOTHING, offset, window.offsets)
        chunk = window.find(offset)
        if chunk is None:
            return None
        self._windows.used(window, chunk)
        return chunk.cut(offset, max_bytes, window.offsets)

    async def bring(
        self,
        tp: TopicPartition,
        offset: int,
        *,
        max_bytes: int,
        committed: bool = True,
        patience_ms: int | None = None,
    ) -> Stretch:
        """Return batches from `offset` on, by one Fetch if they are not at hand; it does not wait for new ones.

        Readers of the same offset share the Fetch. A partition that was read to its end is followed. A leader that
        has moved or is lost is waited for, `patience_ms` at most (None: the request timeout). Raises
        OFFSET_OUT_OF_RANGE with `log_start_offset` and `high_watermark` in its details, UNKNOWN_TOPIC_OR_PARTITION,
        TOPIC_AUTHORIZATION_FAILED, LEADER_NOT_AVAILABLE, LinkLost, UNSUPPORTED_FOR_MESSAGE_FORMAT.
        """
        ms = self._settings.request_timeout_ms if patience_ms is None else patience_ms
        deadline = self._loop.time() + ms / 1000
        attempt = 0
        while True:
            try:
                found = self.at_hand(tp, offset, max_bytes=max_bytes, committed=committed)
                if found is None:
                    found = await self._fetched(tp, offset, max_bytes, committed)
                if found is not None:
                    return found
                error = BrokerError(ErrorCode.REQUEST_TIMED_OUT, f"The leader of {tp} sent no batch.")
            except BrokerError as raised:
                error = raised
                if error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
                    raise await self._out_of_range(tp, offset, committed) from None
                if not unknown(error) and error.code not in MOVED:
                    raise
            if self._loop.time() >= deadline:
                raise error
            # The first time the metadata may just be old.
            if attempt:
                await self._cluster.pause(attempt - 1)
            await self._cluster.refresh((tp.topic,))
            if unknown(error):
                # Raises if there is no such partition.
                self._cluster.partition(tp)
            attempt += 1

    def bounds(self, tp: TopicPartition, *, committed: bool = True) -> LogOffsets | None:
        """Return the bounds that the last Fetch of a followed partition told; None if it is not followed.

        The log end offset is the high watermark.
        """
        window = self._windows.get(tp, committed)
        return None if window is None or window.end < 0 or self._outdated(window) else window.offsets

    async def close(self) -> None:
        """Stop following; readers that wait get LinkLost or are cancelled."""
        self._closed = True
        self._tidier.cancel()
        polls, self._polls = list(self._polls.values()), {}
        for poll in polls:
            await poll.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _outdated(self, window: Window) -> bool:
        """Return whether the topic is another one now, or the log may have been cut where it is not followed."""
        topic = self._cluster.topics.get(window.tp.topic)
        if topic is None:
            return False
        if topic.topic_id != window.topic_id:
            return True
        if window.end >= 0:
            return False
        partition = topic.partition(window.tp.partition)
        return partition is not None and partition.leader_epoch != window.epoch

    # --- fetches that readers wait for ---------------------------------------------------------------------

    async def _fetched(
        self, tp: TopicPartition, offset: int, max_bytes: int, committed: bool
    ) -> Stretch | None:
        """Fetch once; None if the broker had batches and sent none. Raises what the fetch was refused with."""
        leader = self._cluster.leader(tp)
        window = self._windows.get(tp, committed)
        if window is None:
            topic = self._cluster.topic(tp.topic)
            window = Window(tp, committed, topic.topic_id, self._cluster.partition(tp).leader_epoch)
            self._windows.add(window)
        window.used = self._loop.time()
        key = leader, committed
        wants = self._wants.setdefault(key, {}).setdefault(window, {})
        want = wants.get(offset)
        if want is None:
            want = wants[offset] = _Want(self._loop.create_future(), max_bytes)
            if self._fetching.get(key, 0) < _AT_ONCE:
                self._fetching[key] = self._fetching.get(key, 0) + 1
                self._spawn(self._fetch(key))
        want.max_bytes = max(want.max_bytes, max_bytes)
        got = await asyncio.shield(want.future)
        if got.error is not None:
            raise got.error
        if got.diverged:
            raise BrokerError(ErrorCode.UNKNOWN_LEADER_EPOCH, f"The log of {tp} was cut.")
        assert got.offsets is not None
        if got.chunk is not None:
            return got.chunk.cut(offset, max_bytes, got.offsets)
        end = got.offsets.end(committed=committed)
        return Stretch(_NOTHING, offset, got.offsets) if offset >= end else None

    async def _fetch(self, key: tuple[int, bool]) -> None:
        """Send fetches to a leader as long as readers want something of it."""
        leader, _ = key
        try:
            # The readers of this turn of the loop share the first request.
            await asyncio.sleep(0)
            while wants := self._take_wants(key):
                offsets = {window: offset for window, (offset, _) in wants.items()}
                most = max(want.max_bytes for _, want in wants.values())
                ask = Ask(
                    leader,
                    offsets,
                    0,
                    min(max(most, _LEAST_BYTES), self._settings.max_partition_fetch_bytes),
                    self._settings.fetch_max_bytes,
                    _LANE,
                    following=False,
                )
                await self._answer(ask, wants)
        finally:
            self._fetching[key] -= 1

    def _take_wants(self, key: tuple[int, bool]) -> dict[Window, tuple[int, _Want]]:
        """Return one offset of each window: a request names a partition once."""
        waiting = self._wants.get(key, {})
        taken = {}
        for window, wants in list(waiting.items()):
            offset = next(iter(wants))
            taken[window] = offset, wants.pop(offset)
            if not wants:
                del waiting[window]
        return taken

    async def _answer(self, ask: Ask, wants: dict[Window, tuple[int, _Want]]) -> None:
        left = dict(wants)
        failure: BaseException = BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, "The answer names no partition.")
        try:
            answers, silence_ms = await fetch(self._cluster, ask)
            for got in answers:
                if got.window in left:
                    _, want = left.pop(got.window)
                    self._keep(got)
                    want.future.set_result(got)
            if silence_ms > 0:
                for window, (offset, want) in left.items():
                    # It says nothing of any partition: later, and again.
                    want.future.set_result(Got(window, offset, LogOffsets(0, 2**62, 2**62, 2**62), None))
                left.clear()
                await asyncio.sleep(silence_ms / 1000)
        except BrokerError as error:
            failure = error
            self._cluster.refresh_soon({window.tp.topic for window in left})
        finally:
            for _, want in left.values():
                if isinstance(failure, BrokerError):
                    want.future.set_exception(failure)
                    # Its readers may have been cancelled.
                    want.future.exception()

    def _keep(self, got: Got) -> None:
        """Store the batches of a fetch, and follow the partition if they reach its end."""
        window = got.window
        if got.offsets is None or got.error is not None or not self._windows.has(window):
            return
        window.offsets = got.offsets
        topic = self._cluster.topics.get(window.tp.topic)
        partition = None if topic is None else topic.partition(window.tp.partition)
        window.epoch = -1 if partition is None else partition.leader_epoch
        reached = got.asked
        if got.chunk is not None:
            self._windows.store(window, got.chunk)
            reached = got.chunk.next_offset
        if reached == got.offsets.end(committed=window.committed) and window.end < 0:
            window.end = reached
            self._follow(window)

    async def _out_of_range(self, tp: TopicPartition, offset: int, committed: bool) -> BrokerError:
        """Return the error with the bounds, which Kafka's answer does not have."""
        bounds = []
        for which in (EARLIEST, LATEST):
            found = (await list_offsets(self._cluster, {tp: which}, patience_ms=0))[tp]
            bounds.append(found.offset if isinstance(found, TimestampOffset) else -1)
        start, end = bounds
        return BrokerError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"Offset {offset} of {tp} is out of range: the log has offsets {start} to {end - 1}, and {end} is next.",
            log_start_offset=start,
            high_watermark=end,
        )

    # --- following -----------------------------------------------------------------------------------------

    def _follow(self, window: Window) -> None:
        if self._closed:
            return
        try:
            leader = self._cluster.leader(window.tp)
        except BrokerError:
            self._failed((window,))
            return
        key = leader, window.committed
        poll = self._polls.get(key)
        if poll is None:
            poll = self._polls[key] = LeaderPoll(
                self._cluster, leader, window.committed, self._took, self._failed
            )
        poll.add(window)

    def _took(self, got: Got) -> bool:
        """Take what a long poll said of a window; return whether it is still followed at this broker."""
        window = got.window
        if not self._windows.has(window) or window.end < 0:
            return False
        if self._outdated(window) or got.diverged:
            self._end(window)
            return False
        error = got.error
        if error is not None:
            if unknown(error):
                self._cluster.refresh_soon((window.tp.topic,))
            elif error.code in MOVED:
                self._failed((window,))
                return False
            self._end(window)
            return False
        if window.end != got.asked:
            # Another poll was faster.
            return True
        if self._loop.time() - window.used > self._settings.fetch_idle_ms / 1000:
            self._windows.drop(window)
            return False
        assert got.offsets is not None
        changed = window.offsets != got.offsets
        window.offsets = got.offsets
        if got.chunk is not None:
            self._windows.store(window, got.chunk)
            window.end = got.chunk.next_offset
        if got.chunk is not None or changed:
            self._arrived(window.tp)
        return True

    def _end(self, window: Window) -> None:
        """Drop a window whose log has changed; its readers learn why by their next `bring`."""
        self._windows.drop(window)
        self._arrived(window.tp)

    def _failed(self, windows: Iterable[Window]) -> None:
        self._homeless.update(dict.fromkeys(windows))
        if not self._finding and self._homeless and not self._closed:
            self._finding = True
            self._spawn(self._find_leaders())

    async def _find_leaders(self) -> None:
        attempt = 0
        try:
            while self._homeless:
                await self._cluster.pause(attempt)
                attempt += 1
                try:
                    await self._cluster.refresh({window.tp.topic for window in self._homeless})
                except BrokerError:
                    continue
                homeless, self._homeless = self._homeless, {}
                for window in homeless:
                    if not self._windows.has(window) or window.end < 0:
                        continue
                    if self._loop.time() - window.used > self._settings.fetch_idle_ms / 1000:
                        self._windows.drop(window)
                    elif window.tp.topic not in self._cluster.topics or self._outdated(window):
                        self._end(window)
                    else:
                        try:
                            self._cluster.leader(window.tp)
                        except BrokerError:
                            self._homeless[window] = None
                        else:
                            self._follow(window)
        finally:
            self._finding = False

    def _tidy(self) -> None:
        """Drop windows that were not read for a while and are not followed; long polls drop the others."""
        oldest = self._loop.time() - self._settings.fetch_idle_ms / 1000
        for window in self._windows.all():
            if window.end < 0 and window.used < oldest:
                self._windows.drop(window)
        self._tidier = self._loop.call_later(_TIDY_SECONDS, self._tidy)

    def _spawn(self, work: Any) -> None:
        task: asyncio.Task[Any] = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
