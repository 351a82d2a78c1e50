"""Access rules: the store and the authorizer have the same, also if the client that changes them leaves."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any

import pytest

from core.broker.broker import Broker
from core.metadata.acls import load_acls
from core.security.acl import Acl, AclFilter, Operation, PatternType, Permission, ResourceType

SETTINGS = {"super_users": ("User:ANONYMOUS",)}
RULE = Acl(ResourceType.TOPIC, "t", PatternType.LITERAL, "User:alice", "*", Operation.READ, Permission.ALLOW)


async def leave_while_it_is_stored(broker: Broker, work: Coroutine[Any, Any, object]) -> None:
    """The client of a change closes its connection while the change waits for the store."""
    gate = threading.Event()
    held = broker.store.read(lambda _: gate.wait(60))
    change = asyncio.ensure_future(work)
    for _ in range(3):
        await asyncio.sleep(0)
    change.cancel()
    with pytest.raises(asyncio.CancelledError):
        await change
    gate.set()
    assert await held


async def test_a_rule_whose_client_has_left_is_found_and_does_not_come_back(broker: Broker) -> None:
    await leave_while_it_is_stored(broker, broker.acls.create([RULE]))
    await broker.acls.delete([AclFilter()])
    assert broker.acls.describe(AclFilter()) == []
    assert not list(await broker.store.read(load_acls))


async def test_a_rule_that_was_deleted_for_a_client_that_has_left_is_not_in_force(broker: Broker) -> None:
    await broker.acls.create([RULE])
    await leave_while_it_is_stored(broker, broker.acls.delete([AclFilter()]))
    # One change after the other: this one is answered after the deletion.
    await broker.acls.create([RULE._replace(resource_name="u")])
    assert not broker.authorizer.allows("User:alice", "127.0.0.1", Operation.READ, ResourceType.TOPIC, "t")
    assert [Acl(*row) for row in await broker.store.read(load_acls)] == broker.acls.describe(AclFilter())
