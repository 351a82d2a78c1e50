"""A classic consumer group: a pure state machine. No I/O, no clock, no event loop.

Theory. Members agree on who owns what in rounds. A round has two steps: *join* (everybody says what it
supports; the round ends when all known members have joined or the rebalance timeout has passed; one member is
the leader) and *sync* (the leader says what each member gets; everybody is told). Each round makes a new
generation; whoever speaks with an older one has missed a round and is refused, so that a partition never has
two owners in one generation.

    Empty ──join──► PreparingRebalance ──all joined, or time is up──► CompletingRebalance
      ▲  ▲               │      ▲  ▲                                     │          │
      │  └─nobody joined─┘      │  └──join, leave, expiry, no sync───────┘   leader syncs
      │                         │                                                   ▼
      └── (through PreparingRebalance) ◄──join with news, leave, expiry────────── Stable
    Empty ──delete──► Dead

What each request gets:

Empty                 join starts the first round, which lasts the initial delay and grows while members come;
                      sync, heartbeat: UNKNOWN_MEMBER_ID; commit: only without a generation.
PreparingRebalance    join waits for the end of the round; sync, heartbeat: REBALANCE_IN_PROGRESS; commit: yes,
                      so that members can keep what they have read; leave, expiry: the round goes on without.
CompletingRebalance   join with the same protocols: the same answer again, with others: a new round; sync waits
                      for the leader's; heartbeat: yes; commit: REBALANCE_IN_PROGRESS; leave, expiry, and no
                      sync in time: a new round.
Stable                join of the leader or with other protocols: a new round, else the same answer again; sync
                      gives the assignment; heartbeat, commit: yes; leave, expiry: a new round.
Dead                  COORDINATOR_NOT_AVAILABLE for everything; the group is being deleted.

Before that, always: a member that is not known is UNKNOWN_MEMBER_ID, an instance id that has moved to another
member id is FENCED_INSTANCE_ID, another generation is ILLEGAL_GENERATION, protocols that not all support are
INCONSISTENT_GROUP_PROTOCOL, a group that is full is GROUP_MAX_SIZE_REACHED.

A *pending* member has been told its id (MEMBER_ID_REQUIRED) and has yet to join with it; a round waits for it.
A *static* member (group.instance.id, KIP-345) keeps its place when it comes back under a new member id; in
Stable nobody else notices, unless it now wants other topics. The member id it had is fenced. Other than in
Kafka, a static member that misses a round is not counted as one that failed to sync: its session alone decides.

Every waiting request gets exactly one answer: a request that is repeated while the first still waits takes its
place, and the first is told REBALANCE_IN_PROGRESS.

Deadlines are numbers on the members and the group. `wake_at` says when `tick` has something to do at the
latest; a heartbeat only stores a number and never moves `wake_at`, `tick` finds the new one.

Requests of clients are handled here, the rounds themselves in `rounds.py`, who is in the group in `roster.py`.
Every call returns `Effects`: what must be durable, and the answers that may then leave. State is kept when an
answer would give it away: a finished join round (the generation!), a finished sync, a member that went, a
static member that changed its id. Sources: KIP-62, 134, 345, 389, 394, 814, and the protocol guide.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf

from core.errors import ErrorCode
from core.groups.member import Member
from core.groups.messages import Answer, Effects, Moment, StoredGroup, StoredMember
from core.groups.rounds import MIN_ROUND, NEW_MEMBER_TIMEOUT, GroupSettings, Rounds
from core.groups.subscription import CONSUMER_PROTOCOL_TYPE, subscribed_topics
from core.vocabulary.groups import (
    NO_MEMBER,
    GroupListing,
    GroupView,
    JoinReply,
    JoinRequest,
    Leaver,
    LeaveReply,
    State,
    SyncReply,
    SyncRequest,
)


class Group(Rounds):
    """The state of one classic group. See the module's text for the rules."""

    group_type = "classic"

    __slots__ = ()

    # --- join ----------------------------------------------------------------------------------------------

    def join(self, request: JoinRequest, waiter: object, now: Moment) -> Effects:
        """JoinGroup. The answer comes among the effects, of this call or of a later one."""
        member_id = request.member_id
        if self.state is State.DEAD:
            self._refuse_join(waiter, member_id, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        elif not self._has_room_for(member_id):
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
        """The client behind a waiting join has gone; `waiter` gets no answer.

        A member whose id nobody knows is removed: nobody could ever speak for it. Another keeps its place for
        a session and has to join again.
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
        """The client behind a waiting sync has gone; `waiter` gets no answer, the session runs again."""
        for member in self._members.values():
            if member.sync_waiter is waiter:
                member.sync_waiter = None
                self._touch(member, now.monotonic)
                break
        return self._effects()

    def _has_room_for(self, member_id: str) -> bool:
        """Whether the size limit lets this member join (KIP-389)."""
        member = self._members.get(member_id)
        if self.state is State.EMPTY:
            return True
        if self.state is State.PREPARING_REBALANCE:
            # Those who wait are counted, so that a group that has become too large loses the last to rejoin.
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
        """A join without a member id."""
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
        """A join of a member that is in the group."""
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
        """A static member is back under a new id; who still speaks for the old one is fenced (KIP-345)."""
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
        """What a static member hears that came back to a stable group.

        A leader would compute an assignment that nobody waits for: a client that understands `skip_assignment`
        is told so (KIP-814), another hears that the leader is the id before its own, which is nobody.
        """
        leads = member.member_id == self.roster.leader_id
        if request.can_skip_assignment:
            return self._joined(member, skip_assignment=leads)
        leader_id = leader_before if leads else self.roster.leader_id
        return JoinReply(
            ErrorCode.NONE,
            member.member_id,
            self.generation,
            self.protocol_type,
            self.protocol,
            leader_id or NO_MEMBER,
        )

    # --- sync ----------------------------------------------------------------------------------------------

    def sync(self, request: SyncRequest, waiter: object, now: Moment) -> Effects:
        """SyncGroup. The answer comes among the effects, of this call or of a later one."""
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
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        error = self.roster.validate(request.member_id, request.group_instance_id)
        if error:
            return error
        if request.generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        if request.protocol_type not in (None, self.protocol_type):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if request.protocol not in (None, self.protocol):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if self.state is State.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def _assign(self, assignments: Iterable[tuple[str, bytes]], now: Moment) -> None:
        """The leader has spoken. Who is not named owns nothing; names that are no members are ignored."""
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
        """Heartbeat: the member lives. One look-up and one stored number; nothing is ever persisted."""
        member = self._members.get(member_id)
        if member is None or group_instance_id is not None:
            if self.state is State.DEAD:
                return ErrorCode.COORDINATOR_NOT_AVAILABLE
            error = self.roster.validate(member_id, group_instance_id)
            if error:
                return error
            member = self._members[member_id]
        if generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        if not member.is_new:
            member.deadline = now + member.session_timeout
        if self.state is State.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def check_commit(
        self, member_id: str, generation: int, now: float, group_instance_id: str | None = None
    ) -> ErrorCode:
        """Whether an offset commit may land. A good one keeps the member alive, as a heartbeat does.

        Without a generation (simple consumers, admin tools) it may only while the group has no members.
        """
        if self.state is State.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if generation < 0 and self.state is State.EMPTY:
            return ErrorCode.NONE
        error = self.roster.validate(member_id, group_instance_id)
        if error:
            return error
        if generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        if self.state is State.COMPLETING_REBALANCE:
            # The member has heard of the new generation; what it has read belongs to the one before.
            return ErrorCode.REBALANCE_IN_PROGRESS
        member = self._members[member_id]
        if not member.is_new:
            member.deadline = now + member.session_timeout
        return ErrorCode.NONE

    # --- leave, expiry, time ---------------------------------------------------------------------------------

    def leave(self, leavers: Sequence[Leaver], now: Moment) -> tuple[list[LeaveReply], Effects]:
        """LeaveGroup, of one member or many; one rebalance for all of them."""
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

    # --- deletion and restart --------------------------------------------------------------------------------

    def delete(self) -> ErrorCode:
        """Move to Dead, from which nothing leads back; NON_EMPTY_GROUP while there are members."""
        if self.state is State.DEAD:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if self.state is not State.EMPTY:
            return ErrorCode.NON_EMPTY_GROUP
        self._move(State.DEAD)
        return ErrorCode.NONE

    @classmethod
    def restored(
        cls, stored: StoredGroup, members: Iterable[StoredMember], settings: GroupSettings, now: float
    ) -> Group:
        """A group as it was kept; every deadline starts anew, nobody has to rejoin.

        A group that was stored in mid-round goes on with that round: members that missed it hear of it by
        their heartbeats, a leader that was at work may still sync.
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

    # --- views -----------------------------------------------------------------------------------------------

    def view(self) -> GroupView:
        """The group as DescribeGroups shows it."""
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
        """The group as ListGroups shows it."""
        return GroupListing(self.group_id, self.protocol_type or "", self.state.value, self.group_type)

    def is_subscribed(self, topic: str) -> bool:
        """Whether members read this topic; a group of consumers whose metadata is unreadable reads all."""
        if self.state is State.EMPTY or self.state is State.DEAD:
            return False
        if self.subscribed_topics is None:
            return self.protocol_type == CONSUMER_PROTOCOL_TYPE
        return topic in self.subscribed_topics

    def _wanted_topics(self, member: Member) -> frozenset[str] | None:
        return subscribed_topics(self.protocol_type, (member.metadata(self.protocol),))
