"""The authorizer decides as a plain model of Kafka's rules does, however many rules there are."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import BrokerError, ErrorCode
from core.security.acl import (
    CLUSTER_NAME,
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    check_acl,
)
from core.security.authorizer import Authorizer, Rights

READ, WRITE, DESCRIBE = Operation.READ, Operation.WRITE, Operation.DESCRIBE
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
ALLOW, DENY = Permission.ALLOW, Permission.DENY
ALICE = ("User:alice", "192.0.2.1")

# Short names over two letters, so that many prefixes meet.
names = st.text("ab", min_size=1, max_size=3)
principals = st.sampled_from(("User:alice", "User:bob", "User:*"))
hosts = st.sampled_from(("192.0.2.1", "192.0.2.2", "*"))
operations = st.sampled_from([one for one in Operation if one is not Operation.ANY])
kinds = st.sampled_from((TOPIC, GROUP))
acls = st.builds(
    Acl,
    kinds,
    names | st.just("*"),
    st.sampled_from((LITERAL, PREFIXED)),
    principals,
    hosts,
    operations,
    st.sampled_from((ALLOW, DENY)),
)


def topic(
    name: str,
    operation: Operation = READ,
    permission: Permission = ALLOW,
    *,
    pattern: PatternType = LITERAL,
    principal: str = "User:alice",
    host: str = "*",
) -> Acl:
    return Acl(TOPIC, name, pattern, principal, host, operation, permission)


def authorizer(*rules: Acl, allow_if_no_acl: bool = False) -> Authorizer:
    made = Authorizer(enabled=True, super_users=["User:admin"], allow_if_no_acl=allow_if_no_acl)
    made.add(rules)
    return made


# --- a plain model: all rules, one after the other -----------------------------------------------------------


def covers(acl: Acl, kind: ResourceType, name: str) -> bool:
    if acl.resource_type != kind:
        return False
    if acl.pattern_type == PREFIXED:
        return name[: len(acl.resource_name)] == acl.resource_name
    return acl.resource_name == name or acl.resource_name == "*"


def modelled(
    rules: Iterable[Acl],
    principal: str,
    host: str,
    operation: Operation,
    kind: ResourceType,
    name: str,
    default: bool,
) -> bool:
    if principal == "User:admin":
        return True
    about = [acl for acl in rules if covers(acl, kind, name)]
    mine = [acl for acl in about if acl.principal in (principal, "User:*") and acl.host in (host, "*")]
    if any(acl.permission == DENY and acl.operation in (operation, Operation.ALL) for acl in mine):
        return False
    for acl in mine:
        implied = {
            READ: [DESCRIBE], WRITE: [DESCRIBE], Operation.DELETE: [DESCRIBE], Operation.ALTER: [DESCRIBE],
            Operation.ALTER_CONFIGS: [Operation.DESCRIBE_CONFIGS],
        }.get(acl.operation, [])  # fmt: skip
        if acl.permission == ALLOW and operation in [acl.operation, *implied]:
            return True
        if acl.permission == ALLOW and acl.operation == Operation.ALL:
            return True
    return default and not about


@given(
    st.lists(acls, max_size=12),
    st.lists(acls, max_size=4),
    st.sampled_from(("User:alice", "User:bob", "User:carol", "User:admin")),
    st.sampled_from(("192.0.2.1", "192.0.2.2")),
    operations.filter(lambda one: one is not Operation.ALL),
    kinds,
    names,
    st.booleans(),
)
def test_it_decides_as_the_plain_model(
    kept: list[Acl],
    removed: list[Acl],
    principal: str,
    host: str,
    operation: Operation,
    kind: ResourceType,
    name: str,
    default: bool,
) -> None:
    one = authorizer(*kept, *removed, allow_if_no_acl=default)
    one.remove(removed)
    left = set(kept) - set(removed)
    wanted = modelled(left, principal, host, operation, kind, name, default)
    assert one.allows(principal, host, operation, kind, name) is wanted
    rights = Rights(one, principal, host)
    assert rights.may(operation, kind, name) is wanted
    assert rights.may(operation, kind, name) is wanted  # now from the decisions that are kept


@given(st.lists(acls, max_size=6), kinds)
def test_a_right_on_any_resource_is_one_on_some_name(rules: list[Acl], kind: ResourceType) -> None:
    """Kafka looks at names and prefixes alone: what it allows is allowed on some name, unless only longer prefixes
    deny it."""
    one = authorizer(*rules)
    found = one.allows_any("User:alice", "192.0.2.1", WRITE, kind)
    candidates = (
        {acl.resource_name for acl in rules} | {"aaaa", "bbbb", "c"} | {a.resource_name + "c" for a in rules}
    )
    allowed = any(one.allows("User:alice", "192.0.2.1", WRITE, kind, name) for name in candidates - {"*"})
    if allowed:
        assert found
    if found and all(acl.permission == ALLOW for acl in rules):
        assert allowed


# --- single rules --------------------------------------------------------------------------------------------


def test_a_denial_wins_and_implies_nothing() -> None:
    one = Rights(authorizer(topic("t", Operation.ALL), topic("t", READ, DENY)), *ALICE)
    assert not one.may(READ, TOPIC, "t")
    assert one.may(DESCRIBE, TOPIC, "t")
    assert one.may(WRITE, TOPIC, "t")


def test_a_denial_by_the_wildcard_ends_the_right_on_any_resource() -> None:
    one = authorizer(topic("t", WRITE), topic("*", WRITE, DENY))
    assert not Rights(one, *ALICE).may_on_any(WRITE, TOPIC)
    one.remove([topic("*", WRITE, DENY)])
    assert Rights(one, *ALICE).may_on_any(WRITE, TOPIC)


def test_a_denied_prefix_takes_what_begins_with_it() -> None:
    one = authorizer(topic("abc", WRITE, pattern=PREFIXED), topic("ab", WRITE, DENY, pattern=PREFIXED))
    assert not Rights(one, *ALICE).may_on_any(WRITE, TOPIC)
    one.add([topic("b", WRITE)])
    assert Rights(one, *ALICE).may_on_any(WRITE, TOPIC)


def test_decisions_are_dropped_when_anything_changes() -> None:
    one = authorizer()
    rights = Rights(one, *ALICE)
    assert not rights.may(READ, TOPIC, "t")
    view = rights.view
    one.add([topic("t")])
    assert rights.may(READ, TOPIC, "t")
    assert rights.view != view
    one.remove([topic("t")])
    assert not rights.may(READ, TOPIC, "t")
    one.set_super_users(["User:alice"])
    assert rights.may(READ, TOPIC, "t") and rights.view is None
    one.set_super_users([])
    assert not rights.may(READ, TOPIC, "t")
    one.switch(False)
    assert rights.may(READ, TOPIC, "t") and not rights.enforced
    one.switch(True)
    assert not rights.may(READ, TOPIC, "t")


def test_a_refusal_has_the_code_of_the_resource_and_no_name() -> None:
    rights = Rights(authorizer(), *ALICE)
    for kind, code in (
        (TOPIC, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        (GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED),
        (CLUSTER, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        (ResourceType.TRANSACTIONAL_ID, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
    ):
        with pytest.raises(BrokerError) as refused:
            rights.require(WRITE, kind, "secret")
        assert refused.value.code is code
        assert "secret" not in refused.value.message


def test_authorized_operations_are_bits() -> None:
    rights = Rights(authorizer(topic("t", READ), topic("t", Operation.ALTER_CONFIGS)), *ALICE)
    among = (READ, WRITE, DESCRIBE, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS)
    assert rights.operations(TOPIC, "t", among) == 1 << 3 | 1 << 8 | 1 << 10 | 1 << 11
    assert rights.operations(TOPIC, "other", among) == 0


def test_a_decision_among_many_rules_looks_at_few() -> None:
    """10,000 rules of other users, names and prefixes: the patterns that cover a name are found, not searched."""
    one = authorizer(*(topic(f"t{n}", principal=f"User:u{n}") for n in range(5_000)))
    one.add(topic(f"p{n:04}", pattern=PREFIXED, principal=f"User:u{n}") for n in range(5_000))
    one.add([topic("p0007", pattern=PREFIXED)])
    assert len(one) == 10_001
    looked = [acl for rules in one._covering(TOPIC, "p0007-x") for held in rules.values() for acl in held]
    assert len(looked) == 2
    assert Rights(one, *ALICE).may(READ, TOPIC, "p0007-x")
    assert not Rights(one, *ALICE).may(READ, TOPIC, "p0008-x")


# --- filters and rules that cannot be ------------------------------------------------------------------------


def test_filters_fit_as_kafkas_do() -> None:
    rules = [topic("*"), topic("sec", pattern=PREFIXED), topic("secret"), topic("other", WRITE, DENY)]
    one = authorizer(*rules)

    def found(**more: object) -> set[str]:
        return {acl.resource_name for acl in one.matching(AclFilter(**more))}  # type: ignore[arg-type]

    assert found() == {"*", "sec", "secret", "other"}
    assert found(resource_name="secret") == {"secret"}
    assert found(resource_name="secret", pattern_type=PatternType.MATCH) == {"*", "sec", "secret"}
    assert found(pattern_type=PREFIXED) == {"sec"}
    assert found(permission=DENY) == {"other"}
    assert found(operation=READ) == {"*", "sec", "secret"}
    assert found(resource_type=GROUP) == set()
    assert found(principal="User:bob") == set()
    assert found(host="192.0.2.1") == set()


@pytest.mark.parametrize(
    ("acl", "word"),
    [
        (topic(""), "empty"),
        (topic("t", principal="alice"), "no colon"),
        (topic("t", principal=":alice"), "type and a name"),
        (topic("t", Operation.ANY), "operation ANY"),
        (topic("t", pattern=PatternType.MATCH), "MATCH"),
        (topic("t", READ, Permission.ANY), "permission"),
        (Acl(CLUSTER, "other", LITERAL, "User:alice", "*", READ, ALLOW), CLUSTER_NAME),
    ],
)
def test_a_rule_that_cannot_be_is_refused(acl: Acl, word: str) -> None:
    with pytest.raises(BrokerError, match=word) as refused:
        check_acl(acl)
    assert refused.value.code is ErrorCode.INVALID_REQUEST
