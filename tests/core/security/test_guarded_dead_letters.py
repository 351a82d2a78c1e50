"""Dead letters of a caller with few rights: each call needs its own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from core.errors import BrokerError, ErrorCode
from core.security.acl import Acl, Operation, PatternType, Permission, ResourceType
from core.security.principal import Caller, Principal
from core.vocabulary.queues import DeadLetter, DeadLetters, Redrive
from tests.core.consumers.consumer_world import World
from tests.core.queues.queue_world import Q, queue, receive, settle

SETTINGS = {"super_users": ("User:ANONYMOUS",)}
_TOPIC, _GROUP = ResourceType.TOPIC, ResourceType.GROUP
Right = tuple[ResourceType, str, Operation]
Call = Callable[[DeadLetters], Awaitable[object]]

READING: list[Right] = [(_GROUP, Q, Operation.READ), (_TOPIC, "dead", Operation.READ)]


async def _tasks(letters: DeadLetters) -> object:
    return letters.tasks(Q)


@pytest.mark.parametrize(
    ("call", "needed"),
    [
        (lambda letters: letters.list(Q), READING),
        (
            lambda letters: letters.redrive(Q, Redrive(dry_run=True)),
            [*READING, (_TOPIC, "t", Operation.WRITE)],
        ),
        (
            lambda letters: letters.redrive(Q, Redrive(to="other", dry_run=True)),
            [*READING, (_TOPIC, "other", Operation.WRITE)],
        ),
        (_tasks, [(_GROUP, Q, Operation.DESCRIBE)]),
        (lambda letters: letters.purge(Q), [(_GROUP, Q, Operation.DELETE)]),
    ],
    ids=["list", "redrive", "redrive to another topic", "tasks", "purge"],
)
async def test_a_call_needs_all_of_its_rights(w: World, call: Call, needed: list[Right]) -> None:
    broker = w.broker
    await w.topic(records=1)
    await broker.topics.create("other")
    await queue(w, dead_letter=DeadLetter("dead"))
    await settle(w, (await receive(w)).records)
    await broker.topics.create("dead")
    for kind, name, operation in needed:
        letters = broker.guards.of(Caller(Principal(name="alice"))).queues.dead_letters
        with pytest.raises(BrokerError) as refused:
            await call(letters)
        assert refused.value.code in (
            ErrorCode.GROUP_AUTHORIZATION_FAILED,
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        )
        allowed = Acl(kind, name, PatternType.LITERAL, "User:alice", "*", operation, Permission.ALLOW)
        await broker.acls.create([allowed])
    await call(broker.guards.of(Caller(Principal(name="alice"))).queues.dead_letters)
