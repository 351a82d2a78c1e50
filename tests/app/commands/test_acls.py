"""`sluice acls` against a broker, and against a stopped one: the options and the rules of kafka-acls.sh."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.app.commands.running import Sluice
from tests.broker_process import BrokerProcess

# Without a super user no rules are kept.
BROKER_OPTIONS = ("--super-user", "User:ANONYMOUS")


@pytest.fixture
def user(request: pytest.FixtureRequest) -> str:
    """A principal of this test alone."""
    return "User:" + request.node.name.replace("_", "-")[:100]


def rules(sluice: Sluice, user: str) -> set[tuple[str, ...]]:
    """(permission, host, operation, type, name, pattern) of each rule for a principal."""
    found = json.loads(sluice("acls", "list", "--principal", user, "--json").out)
    names = ("permission_type", "host", "operation", "resource_type", "resource_name", "pattern_type")
    return {tuple(one[name] for name in names) for one in found}


def test_each_operation_on_each_resource_for_each_principal(sluice: Sluice, user: str) -> None:
    sluice(
        "acls", "add", "--allow-principal", user, "--operation", "Read", "--operation", "describe-configs",
        "--topic", "orders-", "--group", "billing-", "--resource-pattern-type", "prefixed",
        "--deny-principal", user, "--deny-host", "10.0.0.1",
    )  # fmt: skip
    assert rules(sluice, user) == {
        (permission, host, operation, kind, name, "PREFIXED")
        for permission, host in (("ALLOW", "*"), ("DENY", "10.0.0.1"))
        for operation in ("READ", "DESCRIBE_CONFIGS")
        for kind, name in (("TOPIC", "orders-"), ("GROUP", "billing-"))
    }
    listed = sluice("acls", "list", "--principal", user).out
    assert "PRINCIPAL" in listed and "orders-…" in listed and "10.0.0.1" in listed


def test_what_a_producer_and_a_consumer_need(sluice: Sluice, user: str) -> None:
    both = ("--allow-principal", user, "--topic", "t")
    sluice("acls", "add", *both, "--producer", "--transactional-id", "x", "--idempotent")
    needed = {
        ("ALLOW", "*", operation, kind, name, "LITERAL")
        for kind, name, operation in (
            ("TOPIC", "t", "WRITE"), ("TOPIC", "t", "DESCRIBE"), ("TOPIC", "t", "CREATE"),
            ("TRANSACTIONAL_ID", "x", "WRITE"), ("TRANSACTIONAL_ID", "x", "DESCRIBE"),
            ("CLUSTER", "kafka-cluster", "IDEMPOTENT_WRITE"),
        )
    }  # fmt: skip
    assert rules(sluice, user) == needed
    sluice("acls", "add", *both, "--consumer", "--group", "g")
    needed |= {
        ("ALLOW", "*", "READ", "TOPIC", "t", "LITERAL"),
        ("ALLOW", "*", "READ", "GROUP", "g", "LITERAL"),
    }
    assert rules(sluice, user) == needed


def test_rules_are_removed_by_what_they_say(sluice: Sluice, user: str) -> None:
    sluice("acls", "add", "--allow-principal", user, "--operation", "Read", "--topic", "a", "--topic", "b")
    dry = json.loads(sluice("acls", "remove", "--principal", user, "--dry-run", "--json").out)
    assert len(dry) == 2 and len(rules(sluice, user)) == 2
    assert "--yes" in sluice("acls", "remove", "--principal", user, code=2).err
    sluice("acls", "remove", "--principal", user, "--topic", "a", "--operation", "read", "--yes")
    assert {one[4] for one in rules(sluice, user)} == {"b"}
    assert (
        sluice("acls", "remove", "--principal", user, "--topic", "a", "--yes", "--json").out.strip() == "[]"
    )


@pytest.mark.parametrize(
    ("given", "about"),
    [
        (("add", "--topic", "t"), "--allow-principal"),
        (("add", "--allow-principal", "User:x"), "--topic"),
        (("add", "--allow-principal", "User:x", "--topic", "t", "--operation", "Fly"), "'Fly' is not one of"),
        (("add", "--allow-principal", "User:x", "--producer"), "--producer needs"),
        (("add", "--allow-principal", "User:x", "--topic", "t", "--consumer"), "--group"),
        (("add", "--allow-principal", "User:x", "--topic", "t", "--producer", "--operation", "Read"), "own"),
        (("remove",), "--principal"),
    ],
)
def test_what_says_too_little_is_wrong_usage(sluice: Sluice, given: tuple[str, ...], about: str) -> None:
    assert about in sluice("acls", *given, code=2).err


@pytest.mark.slow
def test_the_rules_of_a_stopped_broker(
    sluice: Sluice, broker: BrokerProcess, tmp_path: Path, user: str
) -> None:
    assert "is in use" in sluice("acls", "--data-dir", str(broker.data_dir), "list", code=1).err
    assert "not the data directory" in sluice("acls", "--data-dir", str(tmp_path), "list", code=1).err
    sluice("acls", "add", "--deny-principal", "User:*", "--topic", "*")
    broker.stop()
    try:
        offline = ("acls", "--data-dir", str(broker.data_dir))
        assert "DENY" in sluice(*offline, "list", "--topic", "*").out
        sluice(*offline, "remove", "--topic", "*", "--permission", "deny", "--yes")
        sluice(*offline, "add", "--allow-principal", user, "--topic", "t", "--operation", "Read")
    finally:
        broker.start()
    assert rules(sluice, user) == {("ALLOW", "*", "READ", "TOPIC", "t", "LITERAL")}
    assert json.loads(sluice("acls", "list", "--topic", "*", "--json").out) == []
