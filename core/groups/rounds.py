"""The rounds of a classic group: how one begins, grows and ends, and what time does to it.

This is the lower half of the machine whose rules open `group.py`; nothing here is asked for by a client. It
holds the state, the deadlines and what the step under way has found out.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from core.errors import ErrorCode
from core.groups.member import Member
from core.groups.messages import Answer, Effects, GroupChange, Moment, StoredGroup
from core.groups.roster import Roster
from core.groups.subscription import subscribed_topics
from core.vocabulary.groups import NO_MEMBER, JoinReply, State, SyncReply

LEGAL_MOVES: dict[State, frozenset[State]] = {
    State.EMPTY: frozenset({State.PREPARING_REBALANCE, State.DEAD}),
    State.PREPARING_REBALANCE: frozenset({State.COMPLETING_REBALANCE, State.EMPTY}),
    State.COMPLETING_REBALANCE: frozenset({State.STABLE, State.PREPARING_REBALANCE}),
    State.STABLE: frozenset({State.PREPARING_REBALANCE}),
    State.DEAD: frozenset(),
}

# A new member does not know its id and cannot send heartbeats; Kafka's limit for it is five minutes as well.
NEW_MEMBER_TIMEOUT = 300.0
# What is already in the sockets is read within this time, when a broker that stood still goes on.
RESUME_GRACE = 1.0
# A round that nobody has joined is looked at again no sooner than this, whatever timeout the members asked for.
MIN_ROUND = 1.0


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """What the operator sets for every group: seconds, members."""

    initial_rebalance_delay: float
    max_size: int


class Rounds:
    """State, generation and deadlines of one group. `Group` adds what clients can ask for."""

    __slots__ = (
        "_answers",
        "_extension_left",
        "_initial",
        "_join_deadline",
        "_members",
        "_must_save",
        "_new_member_added",
        "_pending_sync",
        "_rewrite",
        "_settings",
        "_sync_deadline",
        "empty_since_ms",
        "generation",
        "group_id",
        "protocol",
        "protocol_type",
        "roster",
        "state",
        "subscribed_topics",
        "wake_at",
    )

    def __init__(self, group_id: str, settings: GroupSettings) -> None:
        self.group_id = group_id
        self.state = State.EMPTY
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.roster = Roster()
        self._members = self.roster.members
        # Wall time since when the group has no members; −1 before it ever had one, and while it has.
        self.empty_since_ms = -1
        # The topics that consumers of the present generation want; None where the broker cannot know.
        self.subscribed_topics: frozenset[str] | None = None
        # When `tick` must be called at the latest, in monotonic seconds.
        self.wake_at = inf
        self._settings = settings
        self._pending_sync: set[str] = set()
        self._join_deadline = inf
        self._sync_deadline = inf
        # The first round of a group: it ends by time alone, and grows while members come.
        self._initial = False
        self._new_member_added = False
        self._extension_left = 0.0
        # What the step under way has found out, until `_effects` hands it over.
        self._answers: list[Answer] = []
        self._must_save = False
        self._rewrite = False

    # --- time ------------------------------------------------------------------------------------------------

    def tick(self, now: Moment) -> Effects:
        """Let what is due happen: members and pending members expire, rounds end. Sets `wake_at` anew."""
        time = now.monotonic
        gone = [member_id for member_id, deadline in self.roster.pending.items() if deadline <= time]
        for member_id in gone:
            del self.roster.pending[member_id]
        expired = [m.member_id for m in self._members.values() if m.deadline <= time and m.can_expire]
        for member_id in expired:
            self._remove(member_id)
        self._after_losses(bool(expired), bool(gone), now)
        if self._join_deadline <= time:
            self._round_is_over(now)
        if self._sync_deadline <= time:
            self._sync_is_over(now)
        self.wake_at = self._next_deadline()
        return self._effects()

    def resume(self, now: float, paused: float) -> None:
        """The broker stood still for `paused` seconds: nobody could be heard, and nobody must expire for that.

        Every member has a whole session again, as after a restart; rounds and pending members have the time that
        was left to them, and a little more to be heard in.
        """
        for member in self._members.values():
            member.deadline = max(member.deadline, now + member.session_timeout)
        shift = paused + RESUME_GRACE
        for member_id in self.roster.pending:
            self.roster.pending[member_id] += shift
        self._join_deadline += shift
        self._sync_deadline += shift
        self.wake_at = self._next_deadline()

    def _next_deadline(self) -> float:
        pending = min(self.roster.pending.values(), default=inf)
        members = min((m.deadline for m in self._members.values() if m.can_expire), default=inf)
        return min(pending, members, self._join_deadline, self._sync_deadline)

    def _after_losses(self, members: bool, pending: bool, now: Moment) -> None:
        if members:
            self._rebalance_or_complete(now)
        elif pending:
            self._complete_if_all_joined(now)

    # --- rounds ----------------------------------------------------------------------------------------------

    def _rebalance_or_complete(self, now: Moment) -> None:
        if self.state is State.PREPARING_REBALANCE:
            self._complete_if_all_joined(now)
        else:
            self._prepare(now)

    def _prepare(self, now: Moment) -> None:
        """A new round begins."""
        if self.state is State.COMPLETING_REBALANCE:
            for member in self._members.values():
                if member.sync_waiter is not None:
                    reply = SyncReply(ErrorCode.REBALANCE_IN_PROGRESS)
                    self._answers.append(Answer(member.sync_waiter, reply))
                    member.sync_waiter = None
                    self._touch(member, now.monotonic)
        self._sync_deadline = inf
        self._initial = self.state is State.EMPTY
        self._move(State.PREPARING_REBALANCE)
        timeout = self.roster.rebalance_timeout
        if self._initial:
            delay = min(self._settings.initial_rebalance_delay, timeout)
            self._new_member_added = False
            self._extension_left = timeout - delay
            self._end_round_at(now.monotonic + delay)
            if delay == 0:
                self._complete(now)
        else:
            self._end_round_at(now.monotonic + timeout)
            self._complete_if_all_joined(now)

    def _end_round_at(self, deadline: float) -> None:
        self._join_deadline = deadline
        self._wake(deadline)

    def _complete_if_all_joined(self, now: Moment) -> None:
        if self.state is State.PREPARING_REBALANCE and not self._initial and self.roster.all_joined:
            self._complete(now)

    def _round_is_over(self, now: Moment) -> None:
        """The time of the round is up; a first round in which somebody came lately gets some more."""
        if self._initial and self._new_member_added and self._extension_left > 0:
            delay = min(self._settings.initial_rebalance_delay, self._extension_left)
            self._new_member_added = False
            self._extension_left -= delay
            self._end_round_at(now.monotonic + delay)
        else:
            self._complete(now)

    def _complete(self, now: Moment) -> None:
        """The round ends: who has not joined is out (but for static members), the rest is a new generation."""
        late = [m for m in self._members.values() if m.join_waiter is None and m.group_instance_id is None]
        for member in late:
            self._remove(member.member_id)
        if self._members and not self.roster.elect_joined_leader():
            # Only static members are left, and none has come back. Their sessions decide.
            self._end_round_at(now.monotonic + max(self.roster.rebalance_timeout, MIN_ROUND))
            return
        self._join_deadline = inf
        self._initial = False
        self._pending_sync.clear()
        self.generation += 1
        self._must_save = True
        self.protocol = self.roster.elect_protocol()
        if self._members:
            self._move(State.COMPLETING_REBALANCE)
            self.empty_since_ms = -1
        else:
            self._move(State.EMPTY)
            self.empty_since_ms = now.wall_ms
        self._read_subscriptions()
        self._tell_generation(now)

    def _tell_generation(self, now: Moment) -> None:
        for member in self._members.values():
            if member.join_waiter is not None:
                self._answers.append(Answer(member.join_waiter, self._joined(member)))
                member.join_waiter = None
                member.is_new = False
                member.id_told = True
                self._pending_sync.add(member.member_id)
                self._touch(member, now.monotonic)
        self.roster.joining = 0
        if self._pending_sync:
            self._sync_deadline = now.monotonic + max(self.roster.rebalance_timeout, MIN_ROUND)
            self._wake(self._sync_deadline)

    def _sync_is_over(self, now: Moment) -> None:
        """Members that joined and never synced hold the others up, or hold partitions they do not know of."""
        for member_id in list(self._pending_sync):
            self._remove(member_id)
        self._sync_deadline = inf
        self._prepare(now)

    # --- storage failures and shutdown -------------------------------------------------------------------------

    def release(self, error: ErrorCode) -> Effects:
        """Answer everybody who waits with `error`: the broker stops. The group itself stays as it is."""
        for member in self._members.values():
            self._dismiss(member, error)
        return self._effects()

    def resave(self) -> None:
        """The last change could not be stored: the next effects carry the group as a whole."""
        self.roster.mark_all()
        self._must_save = True
        self._rewrite = True

    # --- small steps -----------------------------------------------------------------------------------------

    def _move(self, state: State) -> None:
        assert state in LEGAL_MOVES[self.state], f"{self.state} does not lead to {state}"
        self.state = state

    def _wake(self, deadline: float) -> None:
        if deadline < self.wake_at:
            self.wake_at = deadline

    def _touch(self, member: Member, now: float) -> None:
        """The member has been heard of, or has been answered: its session starts anew."""
        member.deadline = now + member.session_timeout
        self._wake(member.deadline)

    def _await_join(self, member: Member, waiter: object) -> None:
        if member.join_waiter is None:
            self.roster.joining += 1
        else:
            self._refuse_join(member.join_waiter, member.member_id, ErrorCode.REBALANCE_IN_PROGRESS)
        member.join_waiter = waiter

    def _refuse_join(self, waiter: object, member_id: str, error: ErrorCode) -> None:
        self._answers.append(Answer(waiter, JoinReply(error, member_id)))

    def _dismiss(self, member: Member, error: ErrorCode) -> None:
        if member.join_waiter is not None:
            self.roster.joining -= 1
        self._answer_waiters(member, error)

    def _answer_waiters(self, member: Member, error: ErrorCode) -> None:
        if member.join_waiter is not None:
            self._refuse_join(member.join_waiter, member.member_id, error)
            member.join_waiter = None
        if member.sync_waiter is not None:
            self._answers.append(Answer(member.sync_waiter, SyncReply(error)))
            member.sync_waiter = None

    def _remove(self, member_id: str) -> None:
        """A member goes; requests of it that wait hear UNKNOWN_MEMBER_ID, so that a living client starts anew."""
        member = self._members[member_id]
        self._dismiss(member, ErrorCode.UNKNOWN_MEMBER_ID)
        self.roster.remove(member_id)
        self._pending_sync.discard(member_id)
        self._must_save = self._must_save or not member.is_new

    def _joined(self, member: Member, *, skip_assignment: bool = False) -> JoinReply:
        leads = member.member_id == self.roster.leader_id
        return JoinReply(
            ErrorCode.NONE,
            member.member_id,
            self.generation,
            self.protocol_type,
            self.protocol,
            self.roster.leader_id or NO_MEMBER,
            tuple(m.joined(self.protocol) for m in self._members.values()) if leads else (),
            skip_assignment,
        )

    def _synced(self, member: Member) -> SyncReply:
        return SyncReply(ErrorCode.NONE, member.assignment, self.protocol_type, self.protocol)

    def _read_subscriptions(self) -> None:
        metadata = (member.metadata(self.protocol) for member in self._members.values())
        self.subscribed_topics = subscribed_topics(self.protocol_type, metadata)

    def stored(self, state: State | None = None) -> StoredGroup:
        """The group's row as it is kept, in `state` or the one it is in."""
        return StoredGroup(
            self.group_id,
            (state or self.state).value,
            self.protocol_type,
            self.generation,
            self.protocol,
            self.roster.leader_id,
            self.empty_since_ms,
        )

    def _effects(self) -> Effects:
        answers, self._answers = self._answers, []
        if not self._must_save:
            return Effects(None, answers)
        saved, removed = self.roster.take_changes(self.group_id)
        change = GroupChange(self.stored(), saved, removed, self._rewrite)
        self._must_save = self._rewrite = False
        return Effects(change, answers)
