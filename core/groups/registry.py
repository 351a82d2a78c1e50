"""The groups of this broker: where they are, when they are woken, how their effects become durable.

Theory. The machine decides at once and in memory; what it says leaves only when the change that came with it,
and every change of the group before it, is durable (`settle`). If a change cannot be stored, good news is turned
into COORDINATOR_NOT_AVAILABLE, which makes clients ask again, and the next change carries the group as a whole.

Each group has at most one timer, for the earliest moment at which something may be due. Heartbeats do not
touch it: it fires, finds that nobody is late, and is set anew. So a thousand heartbeats cost no timer at all.
A timer that fires much too late says that the whole process stood still (SIGSTOP, a suspended machine); nobody
could be heard meanwhile, so sessions begin anew, rounds go on for as long as they had left, and nobody expires
for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from typing import Protocol

from core.clock import Clock
from core.config import Config
from core.errors import BrokerError, ErrorCode
from core.groups.group import Group
from core.groups.interfaces import Change, GroupStore
from core.groups.messages import Answer, Effects, Moment, StoredMember
from core.groups.offsets import GroupOffsets
from core.groups.rounds import GroupSettings
from core.vocabulary.groups import JoinReply, State, SyncReply

log = logging.getLogger(__name__)

# A timer that is later than this was held up by a pause of the process, not by load.
STALL = 1.0
# Timers of event loops are rounded to milliseconds; fired a little late they find what is due really due.
TIMER_SLACK = 0.001


class Timer(Protocol):
    """A callback that is to come."""

    def cancel(self) -> object:
        """It shall not come."""
        ...


class Scheduler(Protocol):
    """What wakes the groups; asyncio's event loop is one."""

    def call_later(self, delay: float, callback: Callable[..., object], *args: object) -> Timer:
        """Call `callback(*args)` in `delay` seconds."""
        ...


class Entry:
    """A group with all that the coordinator keeps beside it."""

    __slots__ = ("group", "offsets", "saving", "stored", "timer", "wake_at", "writing")

    def __init__(self, group: Group) -> None:
        self.group = group
        self.offsets = GroupOffsets()
        # The last change of the group on its way to the disk.
        self.saving: asyncio.Future[None] | None = None
        # Offset changes on their way to the disk; expiry leaves the group alone meanwhile.
        self.writing = 0
        # Whether the store may know anything of this group.
        self.stored = False
        self.timer: Timer | None = None
        self.wake_at = inf


class GroupRegistry:
    """All groups, by id. Loaded once; then everything happens on the event loop."""

    _loop: asyncio.AbstractEventLoop

    def __init__(self, config: Config, clock: Clock, scheduler: Scheduler, store: GroupStore) -> None:
        self._config = config
        self._clock = clock
        self._monotonic = clock.monotonic
        self._scheduler = scheduler
        self._store = store
        self._settings = GroupSettings(
            initial_rebalance_delay=config.group_initial_rebalance_delay_ms / 1000,
            max_size=config.group_max_size,
        )
        self._started = self._moment()
        # When a standstill was last noticed.
        self._stalled_at = -inf
        self._entries: dict[str, Entry] = {}
        # Told of every group that has been moved and is not stable now: for members that live in the broker.
        self.watchers: list[Callable[[str], None]] = []
        # What everybody hears while there is nothing else to say: loading first, then nothing, at last stopped.
        self._closed: ErrorCode = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    def __len__(self) -> int:
        return len(self._entries)

    async def load(self) -> None:
        """Take the groups over from the store; from here on requests are served."""
        # Kept, for asking asyncio for it costs a system call each time.
        self._loop = asyncio.get_running_loop()
        stored = await self._store.load()
        now = self._monotonic()
        members: dict[str, list[StoredMember]] = {}
        for member in stored.members:
            members.setdefault(member.group_id, []).append(member)
        for row in stored.groups:
            restored = Group.restored(row, members.get(row.group_id, ()), self._settings, now)
            entry = self._entries[row.group_id] = Entry(restored)
            entry.stored = True
            self._arm(entry)
        names: dict[str, str] = {}
        for group_id, topic, partition, committed in stored.offsets:
            found = self._entries.get(group_id)
            if found is None:
                found = self._entries[group_id] = Entry(Group(group_id, self._settings))
                found.stored = True
            found.offsets.put(names.setdefault(topic, topic), partition, committed)
        self._closed = ErrorCode.NONE

    def elsewhere(self) -> None:
        """Another broker keeps the groups: answer everybody NOT_COORDINATOR, instead of `load`."""
        self._closed = ErrorCode.NOT_COORDINATOR

    def drain(self) -> None:
        """Answer everybody who waits with NOT_COORDINATOR and refuse everything from now on.

        What has been promised is durable already; sessions are not kept over a restart.
        """
        if self._closed is ErrorCode.COORDINATOR_NOT_AVAILABLE:
            return
        self._closed = ErrorCode.COORDINATOR_NOT_AVAILABLE
        for entry in self._entries.values():
            if entry.timer is not None:
                entry.timer.cancel()
                entry.timer = None
            for answer in entry.group.release(ErrorCode.NOT_COORDINATOR).answers:
                _give(answer)

    def refusal(self, group_id: str) -> ErrorCode:
        """NONE if members of this group can be served at all."""
        if self._closed is not ErrorCode.NONE:
            return self._closed
        return ErrorCode.NONE if group_id else ErrorCode.INVALID_GROUP_ID

    def require_name(self, group_id: str) -> None:
        """Raise INVALID_GROUP_ID for the empty id, and what `require_open` raises.

        Membership needs a name; offsets do not: old simple consumers commit under the empty id, and so it can
        be described and deleted too, as in Kafka.
        """
        self.require_open()
        if not group_id:
            raise BrokerError(ErrorCode.INVALID_GROUP_ID, "A group id must not be empty.")

    def require_open(self) -> None:
        """Raise COORDINATOR_LOAD_IN_PROGRESS at the start and COORDINATOR_NOT_AVAILABLE at the stop."""
        if self._closed is not ErrorCode.NONE:
            raise BrokerError(
                self._closed, "The group coordinator does not serve requests at the moment; try again."
            )

    # --- groups come and go ------------------------------------------------------------------------------------

    def _create(self, group_id: str) -> tuple[Entry | None, ErrorCode]:
        """A group that nobody has asked for before; POLICY_VIOLATION when there are too many."""
        if len(self._entries) >= self._config.max_groups:
            self._drop_unused()
        if len(self._entries) >= self._config.max_groups:
            log.warning("group %r refused: there are %d groups already", group_id, len(self._entries))
            return None, ErrorCode.POLICY_VIOLATION
        entry = self._entries[group_id] = Entry(Group(group_id, self._settings))
        return entry, ErrorCode.NONE

    def _drop_unused(self) -> None:
        """Forget groups that exist in memory only and hold nothing, such as those of refused joins."""
        for group_id in [
            i for i, entry in self._entries.items() if self._is_unused(entry) and not entry.stored
        ]:
            self._forget(group_id)

    def _is_unused(self, entry: Entry) -> bool:
        group = entry.group
        return (
            group.state is State.EMPTY
            and not group.roster.pending
            and not entry.offsets
            and not entry.writing
        )

    def _forget(self, group_id: str) -> None:
        entry = self._entries.pop(group_id)
        if entry.timer is not None:
            entry.timer.cancel()

    # --- effects -----------------------------------------------------------------------------------------------

    def _moment(self) -> Moment:
        return Moment(self._monotonic(), self._clock.wall_ms())

    def _settle(self, entry: Entry, effects: Effects) -> None:
        """Store what must be stored, answer then, and see that the group is woken in time."""
        if effects.change is not None:
            entry.stored = True
            entry.saving = self._persist([effects.change])
            entry.saving.add_done_callback(partial(self._saved, entry, effects.answers))
        elif effects.answers:
            if entry.saving is None or entry.saving.done():
                for answer in effects.answers:
                    _give(answer)
            else:
                # These answers may tell of a change that is still on its way.
                entry.saving.add_done_callback(partial(_give_after, effects.answers))
        if entry.group.wake_at < entry.wake_at:
            self._arm(entry)
        if entry.group.state is not State.STABLE:
            for watcher in self.watchers:
                watcher(entry.group.group_id)

    def _persist(self, changes: Sequence[Change]) -> asyncio.Future[None]:
        try:
            return self._store.persist(changes)
        except BrokerError as error:
            refused: asyncio.Future[None] = self._loop.create_future()
            refused.set_exception(error)
            return refused

    def _saved(self, entry: Entry, answers: list[Answer], saving: asyncio.Future[None]) -> None:
        error = saving.exception()
        if error is not None:
            log.error("group %r could not be stored: %s", entry.group.group_id, error)
            entry.group.resave()
        if entry.saving is saving:
            entry.saving = None
        _give_after(answers, saving)

    # --- time --------------------------------------------------------------------------------------------------

    def _arm(self, entry: Entry) -> None:
        if entry.timer is not None:
            entry.timer.cancel()
            entry.timer = None
        entry.wake_at = entry.group.wake_at
        if entry.wake_at < inf and self._closed is not ErrorCode.COORDINATOR_NOT_AVAILABLE:
            delay = max(0.0, entry.wake_at - self._monotonic())
            entry.timer = self._scheduler.call_later(delay + TIMER_SLACK, self._tick, entry)

    def _tick(self, entry: Entry) -> None:
        entry.timer = None
        now = self._monotonic()
        late = now - entry.wake_at
        entry.wake_at = inf
        if late > STALL:
            if now - self._stalled_at > late:
                # Once, not for each group.
                log.warning("the broker stood still for %.1f s; sessions of members begin anew", late)
                self._stalled_at = now
            entry.group.resume(now, late)
        self._settle(entry, entry.group.tick(self._moment()))


def _give(answer: Answer) -> None:
    waiter = answer.waiter
    assert isinstance(waiter, asyncio.Future)
    if not waiter.done():
        waiter.set_result(answer.reply)


def _give_after(answers: list[Answer], saving: asyncio.Future[None]) -> None:
    failed = saving.exception() is not None
    for answer in answers:
        _give(_unavailable(answer) if failed else answer)


def _unavailable(answer: Answer) -> Answer:
    """Good news that could not be made durable is no news; bad news stays true."""
    reply = answer.reply
    if reply.error is not ErrorCode.NONE:
        return answer
    if isinstance(reply, SyncReply):
        return Answer(answer.waiter, SyncReply(ErrorCode.COORDINATOR_NOT_AVAILABLE))
    return Answer(answer.waiter, JoinReply(ErrorCode.COORDINATOR_NOT_AVAILABLE, reply.member_id))
