"""core.security.audit: bounded events, changes that are never left out, no text of a client without a bound."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core.clock import ManualClock
from core.config import Config
from core.errors import BrokerError, ErrorCode
from core.security.acl import Acl, Operation, PatternType, Permission, ResourceType
from core.security.audit import AUDIT, Audit
from core.security.authorizer import Authorizer, Rights

CONFIG = replace(Config(), audit_events_per_second=3)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def audit(clock: ManualClock, caplog: pytest.LogCaptureFixture) -> Audit:
    caplog.set_level(logging.INFO, AUDIT)
    made = Audit(CONFIG, clock, {"alice"})
    made.enabled = True
    return made


def events(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [one.__dict__["fields"] for one in caplog.records if one.name == AUDIT]


def test_a_flood_of_denials_is_counted_and_changes_are_never_left_out(
    audit: Audit, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(100):
        audit.denied("User:bob", "::1", "READ", f"TOPIC:{number}", "")
    audit.change("User:alice", "::1", "DELETE_TOPIC", "TOPIC:t")
    assert [one["event"] for one in events(caplog)] == ["denied"] * 3 + ["change"]
    audit.tell_dropped()
    assert len(events(caplog)) == 4, "not within the same second"
    clock.advance(1)
    audit.denied("User:bob", "::1", "READ", "TOPIC:t", "")
    assert events(caplog)[4] == {"event": "dropped", "count": "97"}
    assert events(caplog)[5]["resource"] == "TOPIC:t"


def test_a_client_that_logs_in_with_each_request_is_noted_once_an_hour(
    audit: Audit, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(5):
        audit.login("User:alice", "TOKEN", "::1", repeated=True)
    audit.login("User:alice", "TOKEN", "::2", repeated=True)
    assert len(events(caplog)) == 2
    clock.advance(3_600)
    audit.login("User:alice", "TOKEN", "::1", repeated=True)
    assert len(events(caplog)) == 3


def test_a_name_that_is_no_user_is_left_out_and_long_texts_are_cut(
    audit: Audit, caplog: pytest.LogCaptureFixture
) -> None:
    audit.failed_login("alice", "PLAIN", "::1")
    audit.failed_login("canary-of-a-password", "PLAIN", "::1")
    audit.denied("User:" + "a" * 100_000, "::1", "READ", "TOPIC:" + "t" * 100_000, "")
    first, second, third = events(caplog)
    assert first["principal"] == "User:alice" and "principal" not in second
    assert "canary" not in str(second)
    assert all(len(value) <= 501 for value in third.values())


def test_it_is_silent_until_there_is_an_authorizer_or_a_file(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, AUDIT)
    silent = Audit(CONFIG, clock, set())
    authorizer = Authorizer(audit=silent)
    silent.change("User:ANONYMOUS", "::1", "DELETE_TOPIC", "TOPIC:t")
    silent.login("User:ANONYMOUS", "TOKEN", "::1")
    assert events(caplog) == []
    authorizer.switch(True)
    silent.change("User:ANONYMOUS", "::1", "DELETE_TOPIC", "TOPIC:t")
    always = Audit(replace(CONFIG, audit_log=Path("file")), clock, set())
    always.change("User:ANONYMOUS", "::1", "DELETE_TOPIC", "TOPIC:t")
    assert len(events(caplog)) == 2


async def test_a_denial_names_its_rule_and_a_change_its_error(
    audit: Audit, caplog: pytest.LogCaptureFixture
) -> None:
    authorizer = Authorizer(enabled=True, audit=audit)
    rights = Rights(authorizer, "User:bob", "::1")
    assert not rights.may(Operation.READ, ResourceType.TOPIC, "t")
    assert events(caplog) == [], "what lists leave out is no denial"
    for _ in range(2):
        with pytest.raises(BrokerError):
            rights.require(Operation.READ, ResourceType.TOPIC, "t")
        deny = Acl(
            ResourceType.TOPIC, "t", PatternType.LITERAL, "User:*", "*", Operation.ALL, Permission.DENY
        )
        authorizer.add([deny])
    assert [one["rule"] for one in events(caplog)] == ["none allows", "DENY User:* * ALL TOPIC:LITERAL:t"]

    async def fail() -> None:
        raise BrokerError(ErrorCode.POLICY_VIOLATION, "no")

    with pytest.raises(BrokerError):
        await rights.noted("CREATE_TOPIC", "TOPIC:t", fail())
    assert events(caplog)[-1]["decision"] == "failed" and events(caplog)[-1]["error"] == "POLICY_VIOLATION"
