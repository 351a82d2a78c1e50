"""All groups of this broker: loading them, waking them, making their effects durable.

Theory. The machine decides at once and in memory. Its answers are sent only when their change, and every earlier
change of the group, is durable (`settle`). If a change cannot be stored, answers without an error become
COORDINATOR_NOT_AVAILABLE, which makes clients retry, and the next change has the whole group.

Each group has at most one timer, for the earliest time at which something may be due. A heartbeat does not touch it:
the timer fires, finds nothing due, and is set again. So a thousand heartbeats cost no timer at all. A timer that
fires much too late shows that the whole process was paused (SIGSTOP, a suspended machine). No request could be read
during the pause, so sessions restart, rounds keep the time that they had left, and no member expires because of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from math import inf

from core.clock import Clock
from core.config import Config
from core.errors import BrokerError, ErrorCode
from core.groups.effects import (
    Answer,
    Change,
    GroupChange,
    Moment,
    OffsetsChange,
    StoredGroup,
    StoredMember,
    StoredModern,
    StoredModernMember,
)
from core.groups.group import Group, GroupSettings
from core.groups.interfaces import GroupStore, Scheduler, Timer
from core.groups.machines import CLASSIC, Catalog, Effects, Machine
from core.groups.offsets import GroupOffsets
from core.groups.pending_offsets import PendingOffsets

log = logging.getLogger(__name__)

# Seconds. A timer that is later than this was delayed by a pause of the process, not by load.
STALL = 1.0
# Seconds. Event loops round timers to milliseconds; a timer that fires this much later finds its work due.
TIMER_SLACK = 0.001


# Makes the machine of a group of its rows: (group, members, monotonic seconds). No client has to rejoin.
Restorer = Callable[[StoredModern, Sequence[StoredModernMember], float], Machine]


class Entry:
    """A group, its committed and pending offsets, and the state of its writes and its timer."""

    __slots__ = (
        "group", "offsets", "pending", "saving", "settling", "staging", "stored", "timer", "wake_at", "writing",
    )  # fmt: skip

    def __init__(self, group: Machine) -> None:
        self.group = group
        self.offsets = GroupOffsets()
        self.pending = PendingOffsets()
        # The last change of the group that is being stored.
        self.saving: asyncio.Future[None] | None = None
        # The changes of offsets that are being stored, in their order; expiry skips the group until there is none.
        self.writing: dict[int, OffsetsChange] = {}
        # Those of them that a decision makes.
        self.settling: dict[int, OffsetsChange] = {}
        # How many of them stage offsets of transactions.
        self.staging = 0
        # Whether the store may hold rows of this group.
        self.stored = False
        self.timer: Timer | None = None
        self.wake_at = inf


class GroupRegistry:
    """All groups, by id. Loaded once; made and used on the event loop."""

    def __init__(self, config: Config, clock: Clock, scheduler: Scheduler, store: GroupStore) -> None:
        self.config = config
        self.clock = clock
        # Kept, because asyncio.get_running_loop() costs a system call each time.
        self.loop = asyncio.get_running_loop()
        self._scheduler = scheduler
        self._store = store
        self.settings = GroupSettings(
            initial_rebalance_delay=config.group_initial_rebalance_delay_ms / 1000,
            max_size=config.group_max_size,
        )
        self.started = self.moment()
        # When a pause was last noticed.
        self._stalled_at = -inf
        self._entries: dict[str, Entry] = {}
        # The groups in which producers have staged offsets, or had.
        self._producers: dict[int, set[str]] = {}
        self._commit_seq = 0
        self._watchers: list[Callable[[str], None]] = []
        self._restorers: dict[str, Restorer] = {}
        # The error of all requests: while the groups are loaded, NONE while they are served, after the stop.
        self.closed: ErrorCode = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[tuple[str, Entry]]:
        """Iterate over group ids and groups as they are now; groups may be added and deleted meanwhile."""
        return iter(list(self._entries.items()))

    def get(self, group_id: str) -> Entry | None:
        """Return the group, or None if there is none."""
        return self._entries.get(group_id)

    def group(self, group_id: str) -> Machine | None:
        """Return the machine of a group, to read and never to change, or None if there is none."""
        entry = self._entries.get(group_id)
        return None if entry is None else entry.group

    def classic(self, group_id: str) -> Group | None:
        """Return the machine of a classic group, to read and never to change, or None if there is none."""
        group = self.group(group_id)
        return group if isinstance(group, Group) else None

    def register(self, group_type: str, restore: Restorer) -> None:
        """Have groups of this type loaded by `restore`. Before `load`."""
        self._restorers[group_type] = restore

    def watch(self, watcher: Callable[[str], None]) -> None:
        """Call `watcher(group_id)` after each step of a group that is not stable after it."""
        self._watchers.append(watcher)

    async def load(self) -> None:
        """Load the groups from the store; requests are served from here on."""
        stored = await self._store.load()
        now = self.clock.monotonic()
        members: dict[str, list[StoredMember]] = {}
        for member in stored.members:
            members.setdefault(member.group_id, []).append(member)
        for row in stored.groups:
            restored = Group.restored(row, members.get(row.group_id, ()), self.settings, now)
            entry = self._entries[row.group_id] = Entry(restored)
            entry.stored = True
            self._arm(entry)
        modern: dict[str, list[StoredModernMember]] = {}
        for one in stored.modern_members:
            modern.setdefault(one.group_id, []).append(one)
        for group in stored.modern:
            machine = self._restorers[group.group_type](group, modern.get(group.group_id, ()), now)
            entry = self._entries[group.group_id] = Entry(machine)
            entry.stored = True
            self._arm(entry)
        names: dict[str, str] = {}
        for group_id, topic, partition, committed in stored.offsets:
            self._loaded(group_id).offsets.put(names.setdefault(topic, topic), partition, committed)
        for group_id, staged in stored.pending:
            self._loaded(group_id).pending.put(staged)
            self._producers.setdefault(staged.producer_id, set()).add(group_id)
            self._commit_seq = max(self._commit_seq, staged.pending.commit_seq)
        self.closed = ErrorCode.NONE

    def _loaded(self, group_id: str) -> Entry:
        """Return a group with stored offsets; it need not have a row of its own."""
        found = self._entries.get(group_id)
        if found is None:
            found = self._entries[group_id] = Entry(Group(group_id, self.settings))
            found.stored = True
        return found

    def elsewhere(self) -> None:
        """Answer all requests NOT_COORDINATOR, because another broker keeps the groups. Instead of `load`."""
        self.closed = ErrorCode.NOT_COORDINATOR

    def drain(self) -> None:
        """Answer all waiting requests NOT_COORDINATOR and refuse all later ones.

        What has been acknowledged is durable already; deadlines of sessions are not kept over a restart.
        """
        if self.closed is ErrorCode.COORDINATOR_NOT_AVAILABLE:
            return
        self.closed = ErrorCode.COORDINATOR_NOT_AVAILABLE
        for entry in self._entries.values():
            if entry.timer is not None:
                entry.timer.cancel()
                entry.timer = None
            for answer in entry.group.release(ErrorCode.NOT_COORDINATOR).answers:
                _give(answer)

    def refusal(self, group_id: str) -> ErrorCode:
        """Return the error of all members of this group, NONE if they can be served."""
        if self.closed is not ErrorCode.NONE:
            return self.closed
        return ErrorCode.NONE if group_id else ErrorCode.INVALID_GROUP_ID

    def require_name(self, group_id: str) -> None:
        """Raise INVALID_GROUP_ID for the empty id, and what `require_open` raises.

        Members need a group id, offsets do not: old simple consumers commit under the empty id. So that group can be
        described and deleted, as in Kafka.
        """
        self.require_open()
        if not group_id:
            raise BrokerError(ErrorCode.INVALID_GROUP_ID, "A group id must not be empty.")

    def require_open(self) -> None:
        """Raise COORDINATOR_LOAD_IN_PROGRESS at the start and COORDINATOR_NOT_AVAILABLE at the stop."""
        if self.closed is not ErrorCode.NONE:
            raise BrokerError(
                self.closed, "The group coordinator does not serve requests at the moment; try again."
            )

    # --- creating and deleting ---------------------------------------------------------------------------------

    def create(self, group_id: str, machine: Machine | None = None) -> tuple[Entry | None, ErrorCode]:
        """Make an empty group in memory, a classic one by default.

        POLICY_VIOLATION when there are `max_groups` already.
        """
        if len(self._entries) >= self.config.max_groups:
            self._drop_unused()
        if len(self._entries) >= self.config.max_groups:
            log.warning("group %r refused: there are %d groups already", group_id, len(self._entries))
            return None, ErrorCode.POLICY_VIOLATION
        entry = self._entries[group_id] = Entry(machine or Group(group_id, self.settings))
        return entry, ErrorCode.NONE

    def convert(self, entry: Entry, machine: Machine) -> None:
        """Give a group a machine of another type; the committed offsets stay.

        The next change of the new machine must say `converted`, which deletes the rows of the other type.
        """
        entry.group = machine
        self._arm(entry)

    def become_classic(self, entry: Entry) -> Group:
        """Make an empty group of another type a classic group, and return its machine."""
        machine = Group(entry.group.group_id, self.settings, converted=True)
        self.convert(entry, machine)
        return machine

    def _drop_unused(self) -> None:
        """Forget groups that exist in memory only and hold nothing, such as those of refused joins."""
        for group_id, entry in self:
            if self.is_unused(entry) and not entry.stored:
                self.forget(group_id)

    def is_unused(self, entry: Entry) -> bool:
        """Return whether a group has no members, pending members, offsets and writes."""
        return entry.group.is_unused and not entry.offsets and not entry.pending and not entry.writing

    def forget(self, group_id: str) -> None:
        """Remove a group from memory."""
        entry = self._entries.pop(group_id)
        if entry.timer is not None:
            entry.timer.cancel()

    def restore(self, entry: Entry, row: StoredGroup, members: Iterable[StoredMember]) -> None:
        """Replace the machine of a group by one made of stored rows."""
        entry.group = Group.restored(row, members, self.settings, self.clock.monotonic())

    # --- effects -----------------------------------------------------------------------------------------------

    def moment(self) -> Moment:
        """Return the present time on both clocks."""
        return Moment(self.clock.monotonic(), self.clock.wall_ms())

    def settle(self, entry: Entry, effects: Effects) -> None:
        """Store the change of a step, give its answers after that, and set the timer."""
        if effects.becomes is not None:
            self.convert(entry, effects.becomes)
        if effects.change is not None:
            entry.stored = True
            entry.saving = self.persist([effects.change])
            entry.saving.add_done_callback(partial(self._saved, entry, effects.answers))
        elif effects.answers:
            if entry.saving is None or entry.saving.done():
                for answer in effects.answers:
                    _give(answer)
            else:
                # These answers may disclose a change that is not durable yet.
                entry.saving.add_done_callback(partial(_give_after, effects.answers))
        self.keep_time(entry)
        if not entry.group.is_stable:
            for watcher in self._watchers:
                watcher(entry.group.group_id)

    def replace(
        self, entry: Entry, row: StoredGroup, members: Sequence[StoredMember]
    ) -> asyncio.Future[None]:
        """Replace a group and all its members by these rows, in memory and in the store; done once durable."""
        self.restore(entry, row, members)
        entry.stored = True
        saving = entry.saving = self.persist([GroupChange(row, tuple(members), replace_members=True)])
        saving.add_done_callback(partial(self._saved, entry, []))
        self._arm(entry)
        return saving

    def persist(self, changes: Sequence[Change]) -> asyncio.Future[None]:
        """Store changes in one transaction. The future fails with a BrokerError if the store refuses them."""
        try:
            return self._store.persist(changes)
        except BrokerError as error:
            refused: asyncio.Future[None] = self.loop.create_future()
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

    def topics_changed(self, catalog: Callable[[], Catalog]) -> None:
        """Give a new catalog of topics to all groups to whose members the broker assigns.

        The catalog is only made if there is such a group.
        """
        for _, entry in self:
            if entry.group.group_type != CLASSIC:
                self.settle(entry, entry.group.topics_changed(catalog(), self.moment()))

    # --- offsets -----------------------------------------------------------------------------------------------

    def next_commit_seq(self) -> int:
        """Return the next number in the order of commits that concern transactions."""
        self._commit_seq += 1
        return self._commit_seq

    async def write(self, entry: Entry, change: OffsetsChange) -> ErrorCode:
        """Store a change of offsets; it becomes visible once it is durable, also if the caller no longer waits."""
        waiter: asyncio.Future[ErrorCode] = self.loop.create_future()
        entry.writing[id(change)] = change
        entry.stored = True
        if change.pending is not None and change.pending.staged:
            entry.staging += 1
        self.persist([change]).add_done_callback(partial(self._written, entry, change, waiter))
        return await waiter

    def _written(
        self,
        entry: Entry,
        change: OffsetsChange,
        waiter: asyncio.Future[ErrorCode],
        saving: asyncio.Future[None],
    ) -> None:
        del entry.writing[id(change)]
        if change.pending is not None and change.pending.staged:
            entry.staging -= 1
        error = ErrorCode.NONE
        if saving.exception() is not None:
            error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        else:
            entry.offsets.apply(change)
            if change.pending is not None:
                entry.pending.apply(change.pending)
                for staged in change.pending.staged:
                    self._producers.setdefault(staged.producer_id, set()).add(change.group_id)
        if not waiter.done():
            waiter.set_result(error)

    def with_pending_of(self, producer_id: int) -> list[tuple[str, Entry]]:
        """Return the groups in which a producer has staged offsets."""
        found = []
        for group_id in sorted(self._producers.get(producer_id, ())):
            entry = self._entries.get(group_id)
            if entry is not None and entry.pending.of_producer(producer_id):
                found.append((group_id, entry))
        return found

    def settled(self, producer_id: int) -> None:
        """Forget which groups a producer had staged offsets in, after the end of its transaction."""
        left = {group_id for group_id, _ in self.with_pending_of(producer_id)}
        if left:
            self._producers[producer_id] = left
        else:
            self._producers.pop(producer_id, None)

    # --- time --------------------------------------------------------------------------------------------------

    def keep_time(self, entry: Entry) -> None:
        """Set the timer if the group has to be woken earlier than it says. After every call that may move `wake_at`.

        A timer that is set too late would be taken for a pause of the process.
        """
        if entry.group.wake_at < entry.wake_at:
            self._arm(entry)

    def _arm(self, entry: Entry) -> None:
        if entry.timer is not None:
            entry.timer.cancel()
            entry.timer = None
        entry.wake_at = entry.group.wake_at
        if entry.wake_at < inf and self.closed is not ErrorCode.COORDINATOR_NOT_AVAILABLE:
            delay = max(0.0, entry.wake_at - self.clock.monotonic())
            entry.timer = self._scheduler.call_later(delay + TIMER_SLACK, self._tick, entry)

    def _tick(self, entry: Entry) -> None:
        entry.timer = None
        now = self.clock.monotonic()
        late = now - entry.wake_at
        entry.wake_at = inf
        if late > STALL:
            if now - self._stalled_at > late:
                # Once, not for each group.
                log.warning("the broker was paused for %.1f s; the sessions of all members start again", late)
                self._stalled_at = now
            entry.group.resume(now, late)
        self.settle(entry, entry.group.tick(self.moment()))


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
    """Return the answer to send if its change could not be stored. An error stays unchanged."""
    if answer.reply.error is not ErrorCode.NONE:
        return answer
    return Answer(answer.waiter, answer.reply.unavailable())
