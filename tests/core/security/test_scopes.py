"""core.security.scopes: a token has the rights of its owner that its scope lists, and no other."""

from __future__ import annotations

import itertools

import pytest

from core.errors import BrokerError, ErrorCode
from core.security.acl import Acl, Operation, PatternType, Permission, ResourceType
from core.security.authorizer import Authorizer, Rights
from core.security.scopes import MAX_RULES, Scope, decode, encode, scope_of
from core.vocabulary.users import ScopeRule, ScopeRules

from .conftest import World

TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
READ_ORDERS = ScopeRule(Operation.READ, TOPIC, PatternType.PREFIXED, "orders-")
WRITE_ONE = ScopeRule(Operation.WRITE, TOPIC, PatternType.LITERAL, "audit")
ALL_GROUPS = ScopeRule(Operation.ALL, GROUP, PatternType.LITERAL, "*")
RULES = (READ_ORDERS, WRITE_ONE, ALL_GROUPS)


def allow(name: str, operation: Operation, kind: ResourceType = TOPIC) -> Acl:
    return Acl(kind, name, PatternType.LITERAL, "User:bob", "*", operation, Permission.ALLOW)


def rights(authorizer: Authorizer, principal: str = "User:bob", rules: ScopeRules = RULES) -> Rights:
    return Rights(authorizer, principal, "127.0.0.1", scope_of(rules))


def test_what_is_allowed_is_in_both_the_rights_of_the_owner_and_the_scope() -> None:
    authorizer = Authorizer(enabled=True, super_users=["User:root"])
    authorizer.add(
        [allow("orders-1", Operation.READ), allow("secret", Operation.ALL), allow("audit", Operation.READ)]
    )
    scoped, owner, root = rights(authorizer), rights(authorizer, rules=()), rights(authorizer, "User:root")
    scope = Scope(RULES)
    names = ("orders-1", "orders-2", "secret", "audit", "kafka-cluster")
    for operation, kind, name in itertools.product(list(Operation)[1:], (TOPIC, GROUP, CLUSTER), names):
        permitted = scope.permits(operation, kind, name)
        assert scoped.may(operation, kind, name) == (permitted and owner.may(operation, kind, name))
        # A super user's token has its scope and no more.
        assert root.may(operation, kind, name) == permitted
    assert scoped.may(Operation.READ, TOPIC, "orders-1") and scoped.may(Operation.DESCRIBE, TOPIC, "orders-1")
    assert not scoped.may(Operation.READ, TOPIC, "orders-2"), "the owner has no right"
    assert not scoped.may(Operation.READ, TOPIC, "secret"), "the scope does not have it"
    assert root.may(Operation.DESCRIBE, TOPIC, "audit") and not root.may(Operation.READ, TOPIC, "audit")
    assert root.may(Operation.DELETE, GROUP, "any") and not root.may(Operation.DESCRIBE, CLUSTER)
    assert not root.unlimited and root.enforced


def test_a_refusal_says_whether_the_scope_is_the_reason() -> None:
    authorizer = Authorizer(enabled=True)
    authorizer.add([allow("secret", Operation.READ)])
    scoped = rights(authorizer)
    assert scoped.refusal(Operation.READ, TOPIC, "secret").details["insufficient_scope"] is True
    assert "insufficient_scope" not in scoped.refusal(Operation.READ, TOPIC, "orders-1").details
    assert (
        "insufficient_scope" not in rights(authorizer, rules=()).refusal(Operation.READ, TOPIC, "x").details
    )


def test_any_resource_needs_both() -> None:
    authorizer = Authorizer(enabled=True)
    authorizer.add([allow("orders-1", Operation.WRITE)])
    assert rights(authorizer).may_on_any(Operation.WRITE, TOPIC)
    assert not rights(authorizer, rules=(READ_ORDERS,)).may_on_any(Operation.WRITE, TOPIC)
    assert not rights(authorizer).may_on_any(Operation.READ, GROUP)


def test_callers_with_different_scopes_do_not_share_answers() -> None:
    authorizer = Authorizer(enabled=True, super_users=["User:root"])
    views = set()
    for rules in ((), RULES, (READ_ORDERS,)):
        one = rights(authorizer, "User:root", rules)
        one.may(Operation.READ, TOPIC, "x")
        views.add(one.view)
    assert len(views) == 3
    # A token with a scope is not its owner: it may not change the password, and make no token without a scope.
    assert rights(authorizer, rules=()).is_user("bob") and not rights(authorizer).is_user("bob")


async def test_a_scope_is_kept(world: World) -> None:
    await world.users.create("alice", None)
    info, text = await world.tokens.create("alice", "", None, scope=RULES)
    whole, _ = await world.tokens.create("alice", "", None)
    assert (info.scope, whole.scope) == (RULES, ())
    await world.restart()
    assert [one.scope for one in world.tokens.all() if one == info] == [RULES]
    for identity in (world.passwords.token(text), await world.passwords.check("alice", text, "")):
        assert identity is not None and identity.scope == Scope(RULES)
    assert decode(encode(RULES)) == RULES and decode(encode(())) == ()


@pytest.mark.parametrize(
    "rules",
    [
        (READ_ORDERS._replace(name=""),),
        (READ_ORDERS._replace(operation=Operation.ANY),),
        (READ_ORDERS._replace(pattern_type=PatternType.MATCH),),
        (READ_ORDERS._replace(resource_type=CLUSTER),),
        (READ_ORDERS._replace(name="x" * 1_001),),
        (READ_ORDERS,) * (MAX_RULES + 1),
    ],
)
async def test_rules_that_cannot_be(world: World, rules: ScopeRules) -> None:
    await world.users.create("alice", None)
    with pytest.raises(BrokerError) as caught:
        await world.tokens.create("alice", "", None, scope=rules)
    assert caught.value.code is ErrorCode.INVALID_REQUEST and world.tokens.all() == []
