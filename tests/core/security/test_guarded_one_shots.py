"""The rights that a transaction in one request needs: WRITE on its topics, READ on its groups and their topics."""

from __future__ import annotations

import pytest

from core.errors import ErrorCode
from core.records.record import NewRecord
from core.security.acl import Acl, Operation, PatternType, Permission, ResourceType
from core.security.principal import Caller, Principal
from core.transactions.one_shots import OneShots
from core.vocabulary.one_shot import AckToSettle, OneShot
from core.vocabulary.settlements import OffsetToSettle, RefusedError
from tests.core.consumers.consumer_world import G, World

SETTINGS = {"super_users": ("User:ANONYMOUS",), "group_initial_rebalance_delay_ms": 0}
TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
TOPIC_DENIED, GROUP_DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED


def rule(kind: ResourceType, name: str, operation: Operation = Operation.READ) -> Acl:
    return Acl(kind, name, PatternType.LITERAL, "User:alice", "*", operation, Permission.ALLOW)


async def test_each_part_needs_the_rights_that_it_needs_alone(w: World) -> None:
    await w.topic("t", records=5)
    await w.topic("out")
    await w.create()
    token = (await w.poll()).token or ""
    shot = OneShot(
        {"out": [NewRecord(None, b"1")], "new": [NewRecord(None, b"2")]},
        [OffsetToSettle("other", "t", 0, 3)],
        [AckToSettle(G, "c", token)],
    )
    alice = w.broker.guards.of(Caller(Principal(name="alice")))

    async def denied() -> dict[tuple[str | int, ...], ErrorCode]:
        with pytest.raises(RefusedError) as refusal:
            await OneShots().commit(alice, shot, lambda done: b"done")
        return {one.path: one.error.code for one in refusal.value.faults}

    assert await denied() == {
        ("records", "out"): TOPIC_DENIED,
        ("records", "new"): TOPIC_DENIED,
        ("offsets", 0): GROUP_DENIED,
        ("acks", 0): GROUP_DENIED,
    }
    write = [rule(TOPIC, name, Operation.WRITE) for name in ("out", "new")]
    await w.broker.acls.create([*write, rule(GROUP, "other"), rule(GROUP, G)])
    # A topic that is missing must be one that may be created.
    assert await denied() == {("records", "new"): TOPIC_DENIED, ("offsets", 0): TOPIC_DENIED}
    await w.broker.acls.create([rule(TOPIC, "t"), rule(TOPIC, "new", Operation.CREATE)])
    assert (await OneShots().commit(alice, shot, lambda done: b"done")).answer == b"done"
    assert w.committed() == {0: 5}
