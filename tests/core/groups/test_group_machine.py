"""The machine under every order of events: clients that follow the protocol, lose answers, die, come back.

Invariants, after each step: only legal moves; generations rise; every join and sync has one answer at most, and none
is left waiting after a long time; the leader is a member; in one generation a partition has one owner, and a
client without the current generation cannot commit; what was answered is on disk.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from core.errors import ErrorCode
from core.groups.assignor import assign
from core.groups.group_rules import LEGAL_MOVES, REFUSALS
from core.vocabulary.groups import JoinReply, Leaver, State, SyncReply
from core.vocabulary.member_metadata import assigned_partitions
from tests.core.groups.machine import Machine, subscription

PARTITIONS = 5
OFFERS = (
    (("range", subscription("t")),),
    (("range", subscription("t", "u")),),
    (("sticky", subscription("t")), ("range", subscription("t"))),
)
FENCED = (
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.REBALANCE_IN_PROGRESS,
)


class Client:
    """A client of the group: what it believes, and the request of it that waits."""

    def __init__(self, number: int, instance: str | None, id_first: bool) -> None:
        self.number = number
        self.instance = instance
        self.id_first = id_first
        self.member_id = ""
        self.generation = -1
        self.protocol = ""
        self.members: tuple[object, ...] = ()
        self.waits: str | None = None
        self.next_step = "join"


class GroupOfClients(RuleBasedStateMachine):
    """Clients act in any order; the model checks what the machine may say."""

    clients = Bundle("clients")

    @initialize(delay=st.sampled_from([0.0, 3.0]), max_size=st.integers(2, 6))
    def start(self, delay: float, max_size: int) -> None:
        self.machine = Machine(delay=delay, max_size=max_size)
        self.everybody = [Client(n, instance, n % 2 == 0) for n, instance in enumerate([None, "i", None])]
        self.living = list(self.everybody)
        self.asked: set[str] = set()
        self.abandoned: set[str] = set()
        self.owners: dict[int, dict[object, str]] = {}
        self.generation = 0

    @rule(seconds=st.sampled_from([0.0, 4.0]))
    def each_member_does_its_next_step(self, seconds: float) -> None:
        """All living clients follow the protocol, so that groups become stable at all."""
        for client in self.living:
            if client.waits is None and client.next_step == "join":
                self._join(client, OFFERS[0], 20_000)
            elif client.waits is None and client.next_step == "sync":
                self._sync(client)
            else:
                self._heartbeat(client)
        self.machine.advance(seconds)
        self._listen()

    # --- what clients do -------------------------------------------------------------------------------------

    @rule(target=clients, instance=st.sampled_from([None, None, "i", "j"]), id_first=st.booleans())
    def appear(self, instance: str | None, id_first: bool) -> Client:
        client = Client(len(self.everybody), instance, id_first)
        self.everybody.append(client)
        self.living.append(client)
        return client

    @rule(client=clients, offer=st.sampled_from(OFFERS), timeout=st.sampled_from([6_000, 20_000]))
    def join(self, client: Client, offer: tuple[tuple[str, bytes], ...], timeout: int) -> None:
        if client.waits is None:
            self._join(client, offer, timeout)

    def _join(self, client: Client, offer: tuple[tuple[str, bytes], ...], timeout: int) -> None:
        waiter = self.machine.join(
            client.member_id,
            new_id=f"m{client.number}-{len(self.asked)}",
            protocols=offer,
            instance=client.instance,
            id_required=client.id_first,
            session_ms=timeout,
            rebalance_ms=timeout,
        )
        self.asked.add(waiter)
        client.waits = waiter
        self._listen()

    @rule(client=clients)
    def sync(self, client: Client) -> None:
        if client.waits is None and client.generation >= 0:
            self._sync(client)

    def _sync(self, client: Client) -> None:
        plan: dict[str, bytes] = {}
        if client.members:
            plan = dict(assign(client.protocol, client.members, lambda _: PARTITIONS, {}))  # type: ignore[arg-type]
        waiter = self.machine.sync(
            client.member_id, plan, client.generation, group_instance_id=client.instance
        )
        self.asked.add(waiter)
        client.waits = waiter
        self._listen()

    @rule(client=clients)
    def heartbeat(self, client: Client) -> None:
        self._heartbeat(client)

    def _heartbeat(self, client: Client) -> None:
        if client.generation < 0:
            return
        error = self.machine.heartbeat(client.member_id, client.generation, client.instance)
        if error is ErrorCode.NONE:
            assert client.generation == self.machine.group.generation
        else:
            assert error in FENCED
            self._receive(client, error)

    @rule(client=clients)
    def commit(self, client: Client) -> None:
        if client.generation < 0:
            return
        error = self.machine.commit(client.member_id, client.generation, client.instance)
        if error is ErrorCode.NONE:
            assert client.generation == self.machine.group.generation
            assert client.member_id in self.machine.group.roster.members
        else:
            assert error in FENCED

    @rule(client=clients)
    def leave(self, client: Client) -> None:
        if client.member_id:
            replies = self.machine.leave(Leaver(client.member_id, client.instance))
            assert replies[0].error in (*FENCED, ErrorCode.NONE)
            client.member_id, client.generation, client.next_step = "", -1, "join"
            self._listen()

    @rule(client=clients)
    def lose_the_connection(self, client: Client) -> None:
        """The client gives its request up; the broker notices."""
        if client.waits is None:
            return
        waiter, client.waits = client.waits, None
        self.abandoned.add(waiter)
        group = self.machine.group
        if waiter.startswith("join"):
            self.machine.settle(group.abandon_join(waiter, self.machine.moment))
        else:
            self.machine.settle(group.abandon_sync(waiter, self.machine.moment))
        self._listen()

    @rule(client=consumes(clients))
    def die(self, client: Client) -> None:
        """The client never sends again; the answers that it waited for are dropped."""
        client.waits = None
        self.living.remove(client)

    @rule(seconds=st.sampled_from([0.5, 3.0, 7.0, 30.0]))
    def wait(self, seconds: float) -> None:
        self.machine.advance(seconds)
        self._listen()

    @rule()
    def pause_the_broker(self) -> None:
        self.machine.now += 60
        self.machine.group.resume(self.machine.now, 60)

    @precondition(lambda self: self.machine.disk.group is not None)
    @rule()
    def restart(self) -> None:
        """kill -9: waiting clients get nothing; the group is what the disk has."""
        before = self.machine.group.generation
        answers = self.machine.answers
        self.machine = self.machine.restart()
        self.machine.answers = answers
        assert self.machine.group.generation == before
        self.abandoned |= self.asked - set(answers)
        for client in self.everybody:
            client.waits = None

    # --- what clients get ------------------------------------------------------------------------------------

    def _listen(self) -> None:
        for client in self.everybody:
            if client.waits is None or client.waits not in self.machine.answers:
                continue
            reply = self.machine.answers[client.waits]
            client.waits = None
            if reply.error is not ErrorCode.NONE:
                if isinstance(reply, JoinReply) and reply.error is ErrorCode.MEMBER_ID_REQUIRED:
                    client.member_id = reply.member_id
                else:
                    self._receive(client, reply.error)
            elif isinstance(reply, JoinReply):
                client.member_id, client.generation = reply.member_id, reply.generation
                client.members, client.protocol = reply.members, reply.protocol or ""
                client.next_step = "sync"
                assert self.machine.disk.group is not None
                assert self.machine.disk.group.generation >= reply.generation
            else:
                self._own(client, reply)

    def _own(self, client: Client, reply: SyncReply) -> None:
        """One owner for each partition in each generation, in all answers at all times."""
        client.next_step = "heartbeat"
        owners = self.owners.setdefault(client.generation, {})
        for partition in assigned_partitions(reply.assignment):
            # A static member that comes back under another id continues with what it had.
            identity = client.instance or client.member_id
            assert owners.setdefault(partition, identity) == identity

    def _receive(self, client: Client, error: ErrorCode) -> None:
        client.next_step = "join"
        if error in (
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.FENCED_INSTANCE_ID,
            ErrorCode.GROUP_MAX_SIZE_REACHED,
        ):
            client.member_id, client.generation = "", -1
        elif error is ErrorCode.ILLEGAL_GENERATION:
            client.generation = -1

    # --- what always holds -----------------------------------------------------------------------------------

    @invariant()
    def generations_rise(self) -> None:
        assert self.machine.group.generation >= self.generation
        self.generation = self.machine.group.generation

    @invariant()
    def the_leader_is_a_member(self) -> None:
        roster = self.machine.group.roster
        assert (roster.leader_id is None) == (not roster.members)
        assert roster.leader_id is None or roster.leader_id in roster.members

    @invariant()
    def the_roster_agrees_with_itself(self) -> None:
        group = self.machine.group
        members = group.roster.members
        assert group.roster.joining == sum(m.join_waiter is not None for m in members.values())
        assert all(members[m].group_instance_id == i for i, m in group.roster.static.items())
        assert not set(group.roster.pending) & set(members)
        assert group._pending_sync <= set(members)
        assert (group.state is State.EMPTY) <= (not members)
        if group.state is not State.PREPARING_REBALANCE:
            assert group.roster.joining == 0
        if group.state is not State.COMPLETING_REBALANCE:
            assert all(m.sync_waiter is None for m in members.values())

    @invariant()
    def the_machine_will_be_woken_in_time(self) -> None:
        group = self.machine.group
        assert group.wake_at <= group._next_deadline()

    @invariant()
    def every_waiting_client_is_known_to_the_machine(self) -> None:
        members = self.machine.group.roster.members.values()
        waiting = {m.join_waiter for m in members} | {m.sync_waiter for m in members}
        for waiter in self.asked - self.abandoned:
            assert (waiter in self.machine.answers) != (waiter in waiting)

    @invariant()
    def the_disk_holds_what_was_answered(self) -> None:
        group = self.machine.group
        told = {m.member_id for m in group.roster.members.values() if not m.is_new}
        assert set(self.machine.disk.members) <= told or group.state is State.PREPARING_REBALANCE

    def teardown(self) -> None:
        """After an hour without a request no client waits and no member is left."""
        if not hasattr(self, "machine"):
            return
        self.machine.advance(3_600)
        assert self.asked - self.abandoned <= set(self.machine.answers)
        assert self.machine.group.roster.members == {}
        assert self.machine.state is State.EMPTY


def test_no_order_of_events_breaks_the_group() -> None:
    run_state_machine_as_test(
        GroupOfClients,
        settings=settings(
            max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )


def test_the_tables_have_every_state_and_dead_is_final() -> None:
    assert set(LEGAL_MOVES) == set(REFUSALS) == set(State)
    assert LEGAL_MOVES[State.DEAD] == frozenset()
