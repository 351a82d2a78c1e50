"""A classic consumer group: a pure state machine. No I/O, no clock, no event loop.

Theory. The members of a group agree in rounds on which member reads which partitions. A round has two steps. *Join*:
each member names the protocols that it supports. The step ends when all known members have joined, or when the
rebalance timeout is over; one member is the leader. *Sync*: the leader sends an assignment for each member, and each
member gets its own. Each round makes a new generation. A member that names an older generation has missed a round and
is refused, so that a partition never has two owners in one generation.

    Empty ──join──► PreparingRebalance ──all joined, or time is up──► CompletingRebalance
      ▲  ▲               │      ▲  ▲                                     │          │
      │  └─none joined───┘      │  └──join, leave, expiry, no sync───────┘   leader syncs
      │                         │                                                   ▼
      └── (through PreparingRebalance) ◄──join with news, leave, expiry────────── Stable
    Empty ──delete──► Dead

Two tables in `group_rules.py` hold the rules that depend on the state alone: `LEGAL_MOVES` the arrows,
`REFUSALS` the errors of sync, heartbeat and commit. What cannot be put in a table:

Empty                 join starts the first round, which lasts the initial delay and is extended while members join.
                      A commit without a generation is accepted in this state only.
PreparingRebalance    join waits for the end of the round. After a leave or an expiry the round continues without the
                      member.
CompletingRebalance   join with the same protocols gets the same answer again; with other protocols it starts a new
                      round. Sync waits for the leader's. A leave, an expiry, and a member that does not sync in time
                      start a new round.
Stable                join of the leader, or with other protocols, starts a new round; any other gets the same answer
                      again. A leave and an expiry start a new round.
Dead                  final: the group is being deleted.

Earlier checks, in all states: a member that is not known is UNKNOWN_MEMBER_ID, an instance id that has moved
to another member id is FENCED_INSTANCE_ID, another generation is ILLEGAL_GENERATION, protocols that not all members
support are INCONSISTENT_GROUP_PROTOCOL, a group that is full is GROUP_MAX_SIZE_REACHED.

A *pending* member has got its id (MEMBER_ID_REQUIRED) but has not joined with it yet; a round waits for it.
A *static* member (group.instance.id, KIP-345) keeps its place when it rejoins under a new member id. In Stable the
other members do not notice, unless the member now wants other topics. Its previous member id is fenced. Other than in
Kafka, a static member that misses a round is not counted as one that failed to sync: its session alone decides.

Every waiting request gets exactly one answer. A request that is repeated while the first still waits takes its place,
and the first gets REBALANCE_IN_PROGRESS.

Deadlines are numbers on the members and the group. `wake_at` is the latest time at which `tick` may have work to do.
A heartbeat only stores a number and never moves `wake_at`; `tick` computes the new one.

`roster.py` keeps the members. Every call returns `Effects`: what must be durable, and the answers that may leave
after that. State is stored when an answer would disclose it: a finished join round (the generation), a finished
sync, a member that left, a static member that changed its id. Sources: KIP-62, 134, 345, 389, 394, 814, and the
protocol guide.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf

from core.errors import ErrorCode
from core.groups.effects import Answer, GroupChange, Moment, StoredGroup, StoredMember
from core.groups.group_rules import LEGAL_MOVES, MIN_ROUND, NEW_MEMBER_TIMEOUT, REFUSALS, RESUME_GRACE
from core.groups.machines import CLASSIC, Catalog, Effects
from core.groups.member import Member
from core.groups.roster import Roster
from core.vocabulary.groups import (
    NO_MEMBER,
    CommitRequest,
    GroupListing,
    GroupView,
    JoinReply,
    JoinRequest,
    Leaver,
    LeaveReply,
    Standing,
    State,
    SyncReply,
    SyncRequest,
)
from core.vocabulary.member_metadata import CONSUMER_PROTOCOL_TYPE, subscribed_topics


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Settings for all groups. Delay in seconds, size in members."""

    initial_rebalance_delay: float
    max_size: int


class Group:
    """The state of one classic group. The rules are in the docstring of this module."""

    group_type = CLASSIC

    __slots__ = (
        "_answers",
        "_converted",
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

    def __init__(self, group_id: str, settings: GroupSettings, *, converted: bool = False) -> None:
        self.group_id = group_id
        self.state = State.EMPTY
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.roster = Roster()
        self._members = self.roster.members
        # Wall time (ms) since when the group has no members; −1 before it ever had one, and while it has.
        self.empty_since_ms = -1
        # The topics that consumers of the present generation read; None where the broker cannot know.
        self.subscribed_topics: frozenset[str] | None = None
        # When `tick` must be called at the latest, in monotonic seconds.
        self.wake_at = inf
        self._settings = settings
        self._pending_sync: set[str] = set()
        self._join_deadline = inf
        self._sync_deadline = inf
        # The first round of a group: it ends by time alone, and is extended while members join.
        self._initial = False
        self._new_member_added = False
        self._extension_left = 0.0
        # What the present step has decided, until `_effects` returns it.
        self._answers: list[Answer] = []
        self._must_save = False
        self._rewrite = False
        # Whether the store has rows of another type of group.
        self._converted = converted

    # --- join ----------------------------------------------------------------------------------------------

    def join(self, request: JoinRequest, waiter: object, now: Moment) -> Effects:
        """Handle JoinGroup. The answer is in the effects of this call or of a later one."""
        member_id = request.member_id
        if self.state is State.DEAD:
            self._refuse_join(waiter, member_id, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        elif not self._accepts_member(member_id):
            self._refuse_join(waiter, NO_MEMBER, ErrorCode.GROUP_MAX_SIZE_REACHED)
            if member_id in self._members:
                self._remove(member_id)
                self._rebalance_or_complete(now)
        elif not self._supports(request):
            self._refuse_join(waiter, member_id, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        elif member_id == NO_MEMBER:
            self._join_new(request, waiter, now)
        elif member_id in self.roster.pending and request.group_instance_id is None:
            self._add(member_id, request, waiter, now, id_told=True)
        else:
            error = self.roster.validate(member_id, request.group_instance_id)
            if error:
                self._refuse_join(waiter, member_id, error)
            else:
                self._rejoin(self._members[member_id], request, waiter, now)
        return self._effects()

    def abandon_join(self, waiter: object, now: Moment) -> Effects:
        """Forget a waiting join whose client has disconnected; `waiter` gets no answer.

        Remove a member whose client does not know its id, because no client can send requests for it. Any other
        member keeps its place for one session and has to join again.
        """
        for member in self._members.values():
            if member.join_waiter is waiter:
                member.join_waiter = None
                self.roster.joining -= 1
                if member.id_told:
                    member.is_new = False
                    self._touch(member, now.monotonic)
                else:
                    self._remove(member.member_id)
                    self._rebalance_or_complete(now)
                break
        return self._effects()

    def abandon_sync(self, waiter: object, now: Moment) -> Effects:
        """Forget a waiting sync whose client has disconnected; `waiter` gets no answer, the session restarts."""
        for member in self._members.values():
            if member.sync_waiter is waiter:
                member.sync_waiter = None
                self._touch(member, now.monotonic)
                break
        return self._effects()

    def _accepts_member(self, member_id: str) -> bool:
        """Return whether the size limit lets this member join (KIP-389)."""
        member = self._members.get(member_id)
        if self.state is State.EMPTY:
            return True
        if self.state is State.PREPARING_REBALANCE:
            # Count the members that have joined, so that a group that is too large loses the last to rejoin.
            waits = member is not None and member.join_waiter is not None
            return waits or self.roster.joining < self._settings.max_size
        return member is not None or len(self._members) < self._settings.max_size

    def _supports(self, request: JoinRequest) -> bool:
        if not request.protocol_type or not request.protocols:
            return False
        if self.state is State.EMPTY:
            return True
        return request.protocol_type == self.protocol_type and self.roster.supports(request)

    def _join_new(self, request: JoinRequest, waiter: object, now: Moment) -> None:
        """Handle a join without a member id."""
        member_id = request.new_member_id
        if request.group_instance_id is not None:
            known = self.roster.static.get(request.group_instance_id)
            if known is None:
                self._add(member_id, request, waiter, now, id_told=False)
            else:
                self._replace_static(self._members[known], request, waiter, now)
        elif not request.member_id_required:
            self._add(member_id, request, waiter, now, id_told=False)
        elif len(self.roster.pending) >= self._settings.max_size:
            self._refuse_join(waiter, NO_MEMBER, ErrorCode.GROUP_MAX_SIZE_REACHED)
        else:
            deadline = now.monotonic + request.session_timeout_ms / 1000
            self.roster.pending[member_id] = deadline
            self._wake(deadline)
            self._refuse_join(waiter, member_id, ErrorCode.MEMBER_ID_REQUIRED)

    def _add(
        self, member_id: str, request: JoinRequest, waiter: object, now: Moment, *, id_told: bool
    ) -> None:
        member = Member(member_id, request, now.monotonic + NEW_MEMBER_TIMEOUT)
        member.id_told = id_told
        self._wake(member.deadline)
        if not self._members:
            self.protocol_type = request.protocol_type
        if self._initial:
            self._new_member_added = True
        self.roster.add(member)
        self._await_join(member, waiter)
        self._rebalance_or_complete(now)

    def _rejoin(self, member: Member, request: JoinRequest, waiter: object, now: Moment) -> None:
        """Handle a join of a member that is in the group."""
        if self.state is not State.PREPARING_REBALANCE:
            # A leader that joins a stable group knows of a reason to rebalance that its metadata does not
            # show, for example new partitions.
            leads = self.state is State.STABLE and member.member_id == self.roster.leader_id
            if member.protocols == request.protocols and not leads:
                # It may have missed the answer; the generation stays.
                self._touch(member, now.monotonic)
                self._answers.append(Answer(waiter, self._joined(member)))
                return
        self.roster.update(member, request)
        self._await_join(member, waiter)
        self._rebalance_or_complete(now)

    def _replace_static(self, old: Member, request: JoinRequest, waiter: object, now: Moment) -> None:
        """Give the place of a static member to its new member id; the old id is fenced (KIP-345)."""
        leader_before = self.roster.leader_id
        wanted = self._wanted_topics(old)
        synced = old.member_id not in self._pending_sync
        self._dismiss(old, ErrorCode.FENCED_INSTANCE_ID)
        member = Member(request.new_member_id, request, now.monotonic + NEW_MEMBER_TIMEOUT)
        member.assignment = old.assignment
        member.is_new = old.is_new
        self.roster.replace(old, member)
        self._must_save = self._must_save or not old.is_new
        if not synced:
            self._pending_sync.discard(old.member_id)
            self._pending_sync.add(member.member_id)
        same_protocol = self.roster.elect_protocol() == self.protocol
        if self.state is State.STABLE and same_protocol and self._wanted_topics(member) == wanted:
            self._touch(member, now.monotonic)
            member.id_told = True
            self._answers.append(Answer(waiter, self._came_back(member, request, leader_before)))
        else:
            self._await_join(member, waiter)
            self._wake(member.deadline)
            self._rebalance_or_complete(now)

    def _came_back(self, member: Member, request: JoinRequest, leader_before: str | None) -> JoinReply:
        """Return the answer to a static member that rejoins a stable group.

        No member waits for an assignment, so the leader must not compute one. A client that understands
        `skip_assignment` gets it (KIP-814); to any other the previous member id is named as leader.
        """
        leads = member.member_id == self.roster.leader_id
        reply = self._joined(member, skip_assignment=leads and request.can_skip_assignment)
        if request.can_skip_assignment or not leads:
            return reply
        return replace(reply, leader_id=leader_before or NO_MEMBER, members=())

    # --- sync ----------------------------------------------------------------------------------------------

    def sync(self, request: SyncRequest, waiter: object, now: Moment) -> Effects:
        """Handle SyncGroup. The answer is in the effects of this call or of a later one."""
        error = self._check_sync(request)
        if error:
            self._answers.append(Answer(waiter, SyncReply(error)))
            return self._effects()
        member = self._members[request.member_id]
        self._pending_sync.discard(member.member_id)
        if not self._pending_sync:
            self._sync_deadline = inf
        if self.state is State.STABLE:
            self._touch(member, now.monotonic)
            self._answers.append(Answer(waiter, self._synced(member)))
        else:
            if member.sync_waiter is not None:
                self._answers.append(Answer(member.sync_waiter, SyncReply(ErrorCode.REBALANCE_IN_PROGRESS)))
            member.sync_waiter = waiter
            if member.member_id == self.roster.leader_id:
                self._assign(request.assignments, now)
        return self._effects()

    def _check_sync(self, request: SyncRequest) -> ErrorCode:
        if self.state is State.DEAD:
            return REFUSALS[State.DEAD].sync
        error = self.roster.validate(request.member_id, request.group_instance_id)
        if error:
            return error
        if request.generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        if request.protocol_type not in (None, self.protocol_type):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if request.protocol not in (None, self.protocol):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return REFUSALS[self.state].sync

    def _assign(self, assignments: Iterable[tuple[str, bytes]], now: Moment) -> None:
        """Apply the leader's assignment. A member that is not named gets nothing; unknown ids are ignored."""
        given = dict(assignments)
        for member_id, member in self._members.items():
            assignment = given.get(member_id, b"")
            if assignment != member.assignment:
                member.assignment = assignment
                self.roster.mark(member)
        self._move(State.STABLE)
        self._must_save = True
        for member in self._members.values():
            if member.sync_waiter is not None:
                self._answers.append(Answer(member.sync_waiter, self._synced(member)))
                member.sync_waiter = None
                self._touch(member, now.monotonic)

    # --- heartbeat and commit ------------------------------------------------------------------------------

    def heartbeat(
        self, member_id: str, generation: int, now: float, group_instance_id: str | None = None
    ) -> ErrorCode:
        """Extend the session of a member. One look-up and one stored number; nothing is persisted."""
        member = self._members.get(member_id)
        if member is None or group_instance_id is not None:
            if self.state is State.DEAD:
                return REFUSALS[State.DEAD].heartbeat
            error = self.roster.validate(member_id, group_instance_id)
            if error:
                return error
            member = self._members[member_id]
        if generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        if not member.is_new:
            member.deadline = now + member.session_timeout
        return REFUSALS[self.state].heartbeat

    def check_commit(self, request: CommitRequest, now: float) -> ErrorCode:
        """Check whether an offset commit is accepted. If it is, it extends the session as a heartbeat does.

        A commit without a generation (simple consumers, admin tools) is accepted only while the group has no members.
        """
        member_id, generation = request.member_id, request.generation
        if self.state is State.DEAD:
            return REFUSALS[State.DEAD].commit
        if generation < 0 and self.state is State.EMPTY:
            return ErrorCode.NONE
        error = self.roster.validate(member_id, request.group_instance_id)
        if error:
            return error
        if generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        refusal = REFUSALS[self.state].commit
        member = self._members[member_id]
        if not refusal and not member.is_new:
            member.deadline = now + member.session_timeout
        return refusal

    def check_staged(self, request: CommitRequest) -> ErrorCode:
        """Check a commit of a transaction. Other than OffsetCommit, it is accepted during a rebalance (KIP-447)."""
        member_id, generation = request.member_id, request.generation
        if self.state is State.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if generation < 0 and member_id == NO_MEMBER and request.group_instance_id is None:
            return ErrorCode.NONE
        if generation < 0 and self.state is State.EMPTY:
            return ErrorCode.NONE
        error = self.roster.validate(member_id, request.group_instance_id)
        if not error and generation != self.generation:
            error = ErrorCode.ILLEGAL_GENERATION
        return error

    def check_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Return NONE: a classic group lets every client fetch."""
        return ErrorCode.NONE

    # --- leave, expiry, time ---------------------------------------------------------------------------------

    def leave(self, leavers: Sequence[Leaver], now: Moment) -> tuple[list[LeaveReply], Effects]:
        """Handle LeaveGroup of one or more members; one rebalance for all of them."""
        replies = []
        members, pending = len(self._members), len(self.roster.pending)
        for leaver in leavers:
            replies.append(LeaveReply(leaver.member_id, leaver.group_instance_id, self._leave(leaver)))
        self._after_losses(len(self._members) < members, len(self.roster.pending) < pending, now)
        return replies, self._effects()

    def _leave(self, leaver: Leaver) -> ErrorCode:
        if self.state is State.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        member_id, instance_id = leaver
        if member_id == NO_MEMBER and instance_id is not None:
            member_id = self.roster.static.get(instance_id, NO_MEMBER)
            if member_id == NO_MEMBER:
                return ErrorCode.UNKNOWN_MEMBER_ID
        elif instance_id is None and self.roster.pending.pop(member_id, None) is not None:
            return ErrorCode.NONE
        error = self.roster.validate(member_id, instance_id)
        if not error:
            self._remove(member_id)
        return error

    # --- time ------------------------------------------------------------------------------------------------

    def tick(self, now: Moment) -> Effects:
        """Do what is due: expire members and pending members, end rounds. Compute `wake_at` again."""
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
        """Shift all deadlines after the broker process was paused for `paused` seconds and could read no request.

        Every member has a whole session again, as after a restart. Rounds and pending members have the time that
        was left before the pause, and `RESUME_GRACE` in addition.
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
        """Begin a round."""
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
        """End the round at its deadline. Extend a first round to which a member was added since the last deadline."""
        if self._initial and self._new_member_added and self._extension_left > 0:
            delay = min(self._settings.initial_rebalance_delay, self._extension_left)
            self._new_member_added = False
            self._extension_left -= delay
            self._end_round_at(now.monotonic + delay)
        else:
            self._complete(now)

    def _complete(self, now: Moment) -> None:
        """End the round: remove dynamic members that have not joined; the others are the new generation."""
        late = [m for m in self._members.values() if m.join_waiter is None and m.group_instance_id is None]
        for member in late:
            self._remove(member.member_id)
        if self._members and not self.roster.elect_joined_leader():
            # Only static members are left, and none has rejoined. Their sessions decide.
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
        """Remove the members that joined and did not sync: they block the others, or own partitions unknowingly."""
        for member_id in list(self._pending_sync):
            self._remove(member_id)
        self._sync_deadline = inf
        self._prepare(now)

    # --- deletion and restart --------------------------------------------------------------------------------

    def delete(self) -> ErrorCode:
        """Move to Dead, which is final. Return NON_EMPTY_GROUP while there are members."""
        if self.state is State.DEAD:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if self.state is not State.EMPTY:
            return ErrorCode.NON_EMPTY_GROUP
        self._move(State.DEAD)
        return ErrorCode.NONE

    def revive(self) -> None:
        """Become empty again, because the deletion could not be stored."""
        self.state = State.EMPTY

    @classmethod
    def restored(
        cls, stored: StoredGroup, members: Iterable[StoredMember], settings: GroupSettings, now: float
    ) -> Group:
        """Restore a stored group. All deadlines restart; no member has to rejoin.

        A group that was stored during a round continues that round: members that missed it learn it from the answers
        to their heartbeats, and the leader may still sync.
        """
        group = cls(stored.group_id, settings)
        group.generation = stored.generation
        group.protocol_type = stored.protocol_type
        group.protocol = stored.protocol
        group.empty_since_ms = stored.empty_since_ms
        for kept in members:
            group.roster.add(Member.restored(kept, stored.protocol_type or "", now))
        group.roster.take_changes(stored.group_id)
        if not group._members:
            return group
        group.state = State(stored.state)
        if stored.leader_id in group._members:
            group.roster.leader_id = stored.leader_id
        group._read_subscriptions()
        patience = now + max(group.roster.rebalance_timeout, MIN_ROUND)
        if group.state is State.PREPARING_REBALANCE:
            group._join_deadline = patience
        elif group.state is State.COMPLETING_REBALANCE:
            group._pending_sync.update(group._members)
            group._sync_deadline = patience
        group.wake_at = group._next_deadline()
        return group

    def begin_again(self, now: Moment) -> Effects:
        """Begin a round in a group that was of another type, and store it as a whole."""
        self.protocol = self.roster.elect_protocol()
        self._read_subscriptions()
        self._prepare(now)
        self.resave()
        effects = self._effects()
        return Effects(effects.change, effects.answers, self)

    # --- views -----------------------------------------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        """See `Machine`."""
        return self.state is State.EMPTY

    @property
    def is_dead(self) -> bool:
        """See `Machine`."""
        return self.state is State.DEAD

    @property
    def is_stable(self) -> bool:
        """See `Machine`."""
        return self.state is State.STABLE

    @property
    def is_unused(self) -> bool:
        """See `Machine`."""
        return self.state is State.EMPTY and not self.roster.pending

    def topics_changed(self, catalog: Catalog, now: Moment) -> Effects:
        """Do nothing: the members of a classic group look for changes of topics."""
        return Effects(None, [])

    def standing(self, member_id: str) -> Standing:
        """Return what the group knows of a member."""
        topics, leads = self.subscribed_topics or (), self.roster.leader_id == member_id
        member = self._members.get(member_id)
        if member is None:
            return Standing(False, leads=leads, topics=topics)
        return Standing(True, self.state is State.STABLE, self.generation, member.assignment, leads, topics)

    def view(self) -> GroupView:
        """Return the group as DescribeGroups shows it."""
        protocol = self.protocol if self.state is State.STABLE else None
        return GroupView(
            self.group_id,
            self.state.value,
            self.protocol_type or "",
            protocol or "",
            tuple(member.view(protocol) for member in self._members.values()),
            self.generation,
            self.roster.leader_id or NO_MEMBER,
        )

    def listing(self) -> GroupListing:
        """Return the group as ListGroups shows it."""
        return GroupListing(self.group_id, self.protocol_type or "", self.state.value, self.group_type)

    def is_subscribed(self, topic: str) -> bool:
        """Return whether members read this topic. Consumers whose metadata is unreadable count for all topics."""
        if self.state is State.EMPTY or self.state is State.DEAD:
            return False
        if self.subscribed_topics is None:
            return self.protocol_type == CONSUMER_PROTOCOL_TYPE
        return topic in self.subscribed_topics

    # --- storage failures and shutdown -----------------------------------------------------------------------

    def release(self, error: ErrorCode) -> Effects:
        """Answer all waiting requests with `error`: the broker stops. The group itself does not change."""
        for member in self._members.values():
            self._dismiss(member, error)
        return self._effects()

    def resave(self) -> None:
        """Make the next effects carry the whole group, because the last change could not be stored."""
        self.roster.mark_all()
        self._must_save = True
        self._rewrite = self._converted = True

    # --- small steps -----------------------------------------------------------------------------------------

    def _move(self, state: State) -> None:
        assert state in LEGAL_MOVES[self.state], f"{self.state} does not lead to {state}"
        self.state = state

    def _wake(self, deadline: float) -> None:
        if deadline < self.wake_at:
            self.wake_at = deadline

    def _touch(self, member: Member, now: float) -> None:
        """Restart the session of a member that sent a request or got an answer."""
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
        """Remove a member. Its waiting requests get UNKNOWN_MEMBER_ID, so that a client that is alive joins again."""
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

    def _wanted_topics(self, member: Member) -> frozenset[str] | None:
        return subscribed_topics(self.protocol_type, (member.metadata(self.protocol),))

    def stored(self, state: State | None = None) -> StoredGroup:
        """Return the group's row as it is stored, with `state` or its present state."""
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
        change = GroupChange(self.stored(), saved, removed, self._rewrite, self._converted)
        self._must_save = self._rewrite = self._converted = False
        return Effects(change, answers)
