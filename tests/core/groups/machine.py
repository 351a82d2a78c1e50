"""A group machine at the end of short calls, with its answers and its durable state caught, for tests."""

from __future__ import annotations

from dataclasses import replace

from core.errors import ErrorCode
from core.groups.effects import GroupChange, Moment, StoredGroup, StoredMember
from core.groups.group import Group, GroupSettings
from core.groups.machines import Effects
from core.vocabulary.groups import (
    CommitRequest,
    JoinReply,
    JoinRequest,
    Leaver,
    LeaveReply,
    State,
    SyncReply,
    SyncRequest,
)

DELAY = 3.0
SESSION_MS = 10_000
REBALANCE_MS = 60_000


def subscription(*topics: str) -> bytes:
    """Consumer metadata, version 0."""
    body = b"".join(len(t).to_bytes(2, "big") + t.encode() for t in topics)
    return b"\0\0" + len(topics).to_bytes(4, "big") + body + b"\xff\xff\xff\xff"


class Disk:
    """What a store would hold after the changes of a group."""

    def __init__(self) -> None:
        self.group: StoredGroup | None = None
        self.members: dict[str, StoredMember] = {}
        self.writes = 0

    def apply(self, effects: Effects) -> None:
        change = effects.change
        if not isinstance(change, GroupChange):
            return
        self.writes += 1
        self.group = change.group
        if change.replace_members:
            self.members = {}
        for member_id in change.removed:
            self.members.pop(member_id, None)
        for member in change.members:
            self.members[member.member_id] = member


class Machine:
    """One group, a clock, a disk, and every answer that was given, by waiter."""

    def __init__(self, *, delay: float = DELAY, max_size: int = 100) -> None:
        self.settings = GroupSettings(initial_rebalance_delay=delay, max_size=max_size)
        self.group = Group("g", self.settings)
        self.now = 1000.0
        self.wall_ms = 1_700_000_000_000
        self.disk = Disk()
        self.answers: dict[str, JoinReply | SyncReply] = {}
        self._waiters = 0

    @property
    def moment(self) -> Moment:
        return Moment(self.now, self.wall_ms)

    @property
    def state(self) -> State:
        return self.group.state

    def waiter(self, kind: str) -> str:
        self._waiters += 1
        return f"{kind}{self._waiters}"

    def settle(self, effects: Effects) -> None:
        self.disk.apply(effects)
        for waiter, reply in effects.answers:
            assert isinstance(waiter, str)
            assert waiter not in self.answers, f"{waiter} was answered twice"
            self.answers[waiter] = reply

    def join(
        self,
        member_id: str = "",
        *,
        new_id: str = "",
        protocols: tuple[tuple[str, bytes], ...] = (("range", subscription("t")),),
        protocol_type: str = "consumer",
        instance: str | None = None,
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        id_required: bool = False,
        can_skip: bool = False,
    ) -> str:
        """Send a join; answers the waiter, whose answer is in `answers` once it came."""
        waiter = self.waiter("join")
        request = JoinRequest(
            member_id,
            protocol_type,
            protocols,
            session_ms,
            rebalance_ms,
            client_id="client",
            client_host="/127.0.0.1",
            group_instance_id=instance,
            new_member_id=new_id or f"m{self._waiters}",
            member_id_required=id_required,
            can_skip_assignment=can_skip,
        )
        self.settle(self.group.join(request, waiter, self.moment))
        return waiter

    def sync(
        self,
        member_id: str,
        assignments: dict[str, bytes] | None = None,
        generation: int | None = None,
        **more: object,
    ) -> str:
        waiter = self.waiter("sync")
        request = SyncRequest(
            member_id,
            self.group.generation if generation is None else generation,
            tuple((assignments or {}).items()),
        )
        request = replace(request, **more)  # type: ignore[arg-type]
        self.settle(self.group.sync(request, waiter, self.moment))
        return waiter

    def heartbeat(
        self, member_id: str, generation: int | None = None, instance: str | None = None
    ) -> ErrorCode:
        generation = self.group.generation if generation is None else generation
        return self.group.heartbeat(member_id, generation, self.now, instance)

    def commit(self, member_id: str, generation: int | None = None, instance: str | None = None) -> ErrorCode:
        generation = self.group.generation if generation is None else generation
        request = CommitRequest((), member_id, generation, instance)
        return self.group.check_commit(request, self.now)

    def leave(self, *leavers: str | Leaver) -> list[LeaveReply]:
        wanted = [leaver if isinstance(leaver, Leaver) else Leaver(leaver) for leaver in leavers]
        replies, effects = self.group.leave(wanted, self.moment)
        self.settle(effects)
        return replies

    def advance(self, seconds: float) -> None:
        """Let time pass, calling `tick` whenever the machine asked for it."""
        end = self.now + seconds
        steps = 0
        while self.group.wake_at <= end:
            self._pass(max(self.group.wake_at - self.now, 0.0))
            self.settle(self.group.tick(self.moment))
            steps += 1
            assert steps < 10_000, "the machine asks to be woken all the time"
        self._pass(end - self.now)

    def end_round(self) -> None:
        """Let just enough time pass for the join round to end."""
        while self.state is State.PREPARING_REBALANCE:
            self.advance(self.group.wake_at - self.now)
        assert self.state is State.COMPLETING_REBALANCE

    def _pass(self, seconds: float) -> None:
        self.now += seconds
        self.wall_ms += round(seconds * 1000)

    def joined(self, waiter: str) -> JoinReply:
        reply = self.answers[waiter]
        assert isinstance(reply, JoinReply)
        return reply

    def synced(self, waiter: str) -> SyncReply:
        reply = self.answers[waiter]
        assert isinstance(reply, SyncReply)
        return reply

    def restart(self) -> Machine:
        """A machine made from what the disk holds, half an hour later."""
        other = Machine(delay=self.settings.initial_rebalance_delay, max_size=self.settings.max_size)
        other.now, other.wall_ms = self.now + 1800, self.wall_ms + 1_800_000
        other.disk = self.disk
        other._waiters = self._waiters
        if self.disk.group is not None:
            members = list(self.disk.members.values())
            other.group = Group.restored(self.disk.group, members, self.settings, other.now)
        return other


def stable(*names: str, **join: object) -> Machine:
    """A machine whose group is stable, with one member a name; the first leads, each owns its own name."""
    machine = Machine()
    for name in names:
        machine.join(new_id=name, **join)  # type: ignore[arg-type]
    machine.end_round()
    for name in reversed(names):
        machine.sync(name, {n: n.encode() for n in names})
    assert machine.state is State.STABLE
    return machine


def static_leader() -> Machine:
    """A stable group of a static member, which leads, and a dynamic one."""
    machine = Machine()
    machine.join(new_id="i-1", instance="i")
    machine.join(new_id="b")
    machine.end_round()
    machine.sync("b")
    machine.sync("i-1", {"i-1": b"I", "b": b"B"})
    return machine
