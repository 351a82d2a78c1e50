"""A consumer group against clients that lose answers, repeat requests, die and come back: what always holds.

The clients are those of KIP-848: a client owns what the last answer that reached it named, gives up what it does not
name, and is fenced when it is told so. Members of the classic protocol, eager and cooperative, are beside them. The
broker may start again from what is stored at any time.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from core.errors import ErrorCode
from core.groups.consumer_group import ConsumerGroup
from core.groups.target_assignment import ASSIGNORS
from core.vocabulary.consumer_groups import ConsumerGroupState
from tests.core.groups.consumer_machine import ConsumerMachine, T, catalog, of_sync

NAMES = ["a", "b", "c", "d"]
CLASSIC_NAMES = ["k", "l"]
REJOIN = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID)


@dataclass
class Client:
    """A client: what it believes."""

    name: str
    epoch: int = 0
    # Partitions that it reads.
    owned: set[int] = field(default_factory=set)
    is_member: bool = False
    # Whether it must say everything, because an answer may have been lost.
    is_full: bool = False


class Clients(RuleBasedStateMachine):
    """Rules are what clients and the world do."""

    def __init__(self) -> None:
        super().__init__()
        self.m = ConsumerMachine(catalog(t=5), interval=1.0, session_timeout=45.0, stays=True)
        self.clients = {name: Client(name) for name in NAMES}
        self.classic = {name: Client(name) for name in CLASSIC_NAMES}
        self.partitions = 5

    # --- the consumer protocol ---------------------------------------------------------------------------------

    @rule(name=st.sampled_from(NAMES), assignor=st.sampled_from([None, *ASSIGNORS]), is_lost=st.booleans())
    def join(self, name: str, assignor: str | None, is_lost: bool) -> None:
        client = self.clients[name]
        if client.is_member:
            # A client joins only after it was fenced, and then owns nothing.
            return
        client.owned = set()
        reply = self.m.join(name, assignor=assignor)
        assert reply.error is ErrorCode.NONE
        if not is_lost:
            assert reply.assignment is not None
            client.is_member, client.epoch = True, reply.member_epoch
            client.owned = set(reply.assignment.get(T, ()))
            client.is_full = False

    @rule(name=st.sampled_from(NAMES), is_lost=st.booleans(), is_repeated=st.booleans())
    def beat(self, name: str, is_lost: bool, is_repeated: bool) -> None:
        client = self.clients[name]
        if not client.is_member:
            return
        more: dict[str, object] = {"owned": {T: sorted(client.owned)} if client.owned else {}}
        if client.is_full:
            more |= {"topics": ["t"], "rebalance_timeout_ms": 60_000}
        before = client.epoch
        reply = self.m.beat(name, client.epoch, **more)
        if is_repeated and not reply.error:
            reply = self.m.beat(name, client.epoch, **more)
        if is_lost:
            client.is_full = True
            return
        if reply.error:
            assert reply.error in REJOIN, reply
            client.is_member, client.owned, client.epoch = False, set(), 0
            return
        client.is_full = False
        assert reply.member_epoch >= before
        client.epoch = reply.member_epoch
        if reply.assignment is not None:
            client.owned = set(reply.assignment.get(T, ()))

    @rule(name=st.sampled_from(NAMES), is_lost=st.booleans())
    def leave(self, name: str, is_lost: bool) -> None:
        client = self.clients[name]
        if client.is_member:
            if not is_lost:
                self.m.beat(name, -1)
            client.is_member, client.owned, client.epoch = False, set(), 0

    # --- the classic protocol ----------------------------------------------------------------------------------

    @rule(name=st.sampled_from(CLASSIC_NAMES), is_lost=st.booleans())
    def classic_join(self, name: str, is_lost: bool) -> None:
        """`k` is cooperative, `l` eager."""
        client = self.classic[name]
        is_eager = name == "l"
        if is_eager:
            client.owned = set()
        reply = self.m.classic_join(name, owned=[("t", n) for n in sorted(client.owned)])
        assert reply.error is ErrorCode.NONE
        client.is_full = is_lost
        if is_lost:
            return
        client.epoch, client.is_member = reply.generation, True
        synced = self.m.sync(name, client.epoch)
        if synced.error is ErrorCode.NONE:
            given = set(of_sync(synced))
            client.owned = given
        else:
            assert synced.error is ErrorCode.REBALANCE_IN_PROGRESS

    @rule(name=st.sampled_from(CLASSIC_NAMES))
    def classic_heartbeat(self, name: str) -> None:
        client = self.classic[name]
        if client.is_full:
            # It repeats the join whose answer was lost.
            self.classic_join(name, False)
            return
        if not client.is_member:
            return
        error = self.m.heartbeat(name, client.epoch)
        if error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            # Its partitions are lost.
            client.owned, client.is_member = set(), False
        elif error is ErrorCode.REBALANCE_IN_PROGRESS:
            self.classic_join(name, False)

    # --- the world -----------------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([0.5, 1.0, 5.0, 20.0, 50.0]))
    def wait(self, seconds: float) -> None:
        """Clients whose session ends notice it themselves, as real ones do, before others get their partitions."""
        self.m.advance(seconds)
        for client in [*self.clients.values(), *self.classic.values()]:
            if client.name not in self.m.group.roster.members:
                client.is_member, client.owned, client.epoch = False, set(), 0

    @precondition(lambda self: self.partitions < 9)
    @rule()
    def more_partitions(self) -> None:
        self.partitions += 2
        self.m.change(catalog(t=self.partitions))

    @rule()
    def restart(self) -> None:
        before = self.m.group.epoch
        self.m.restart()
        assert self.m.group.epoch >= before or not self.m.group.roster.members

    # --- what always holds ---------------------------------------------------------------------------------------

    @invariant()
    def a_partition_has_one_owner(self) -> None:
        seen: dict[int, str] = {}
        for client in [*self.clients.values(), *self.classic.values()]:
            for number in client.owned:
                assert number not in seen, f"{number} belongs to {seen[number]} and {client.name}"
                seen[number] = client.name

    @invariant()
    def the_table_of_owners_is_what_members_have(self) -> None:
        roster = self.m.group.roster
        held = {
            (topic_id, number, member.member_id)
            for member in roster.members.values()
            for owned in (member.assigned, member.revoking)
            for topic_id, numbers in owned.items()
            for number in numbers
        }
        assert held == set(roster.owners)
        assert len({entry[:2] for entry in held}) == len(held)
        assert roster.classic == sum(member.classic is not None for member in roster.members.values())

    @invariant()
    def what_is_stored_is_what_is_in_memory(self) -> None:
        group = self.m.group
        stored = {name: row.details for name, row in self.m.disk.members.items()}
        assert stored == {one.member_id: one.stored("g").details for one in group.roster.members.values()}
        assert group.target_epoch <= group.epoch

    def teardown(self) -> None:
        """After quiet all members are stable, and the target is complete."""
        assert isinstance(self.m.machine, ConsumerGroup)
        for _ in range(12):
            self.m.advance(2.0)
            for client in self.clients.values():
                self.beat(client.name, False, False)
            for client in self.classic.values():
                self.classic_heartbeat(client.name)
            for name in [n for n in self.m.group.roster.members if not self._client(n).is_member]:
                # Its join was lost: it joins again.
                if name in self.clients:
                    self.join(name, None, False)
                else:
                    self.classic_join(name, False)
        group = self.m.group
        if group.is_empty:
            return
        assert group.state is ConsumerGroupState.STABLE, group.described()
        owned = sorted(n for member in group.roster.members.values() for n in member.assigned.get(T, ()))
        assert owned == list(range(self.partitions))
        counts = [len(member.assigned.get(T, ())) for member in group.roster.members.values()]
        assert max(counts) - min(counts) <= 1
        clients = [*self.clients.values(), *self.classic.values()]
        assert {c.name: sorted(c.owned) for c in clients if c.is_member} == {
            name: sorted(member.assigned.get(T, ())) for name, member in group.roster.members.items()
        }

    def _client(self, name: str) -> Client:
        return self.clients.get(name) or self.classic[name]


TestClients = Clients.TestCase
TestClients.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
