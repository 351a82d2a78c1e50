"""The audit log over a whole application: each kind of event, from each listener, and no secret in any of them."""

from __future__ import annotations

import io
import json
import logging
import stat
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.logs import configured
from core.clock import ManualClock
from core.config import Config, Endpoint
from core.errors import StartupError
from core.kafka07.listener import Kafka07Listener
from core.line_protocol.commands import HANDLERS as COMMANDS
from core.line_protocol.listener import LineListener
from core.listeners.kafka.dispatch import HANDLERS
from core.listeners.kafka.listener import KafkaListener
from core.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from core.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from core.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from core.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from core.protocol.messages.sasl_handshake import SaslHandshakeRequest
from core.records.record import NewRecord
from core.security.audit import AUDIT
from core.security.passwords import Identity
from core.security.principal import Principal
from tests.app.http.test_authentication import PASSWORD, Served, ask, basic
from tests.core.kafka07.old_client import fetch
from tests.core.listeners.kafka.conftest import Client
from tests.issuer import Issuer

WRONG = "canary-of-a-wrong-password"
RECORD = b"canary-of-a-record"


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    """What a process writes to stderr."""
    stream = io.StringIO()
    with configured(Config(), stream):
        yield stream


@pytest.fixture
def noted(lines: io.StringIO) -> Callable[[], list[dict[str, Any]]]:
    """Returns the events since its last call."""

    def look() -> list[dict[str, Any]]:
        found = lines.getvalue()
        lines.seek(0)
        lines.truncate()
        assert "canary" not in found and found.isascii()
        return [json.loads(line) for line in found.splitlines() if AUDIT in line]

    return look


@pytest.fixture
async def served(tmp_path: Path, lines: io.StringIO) -> AsyncIterator[Served]:
    made = Served(tmp_path / "data", "basic,token")
    async with made.app.lifespan():
        await made.users.create("alice", PASSWORD)
        await made.users.create("carol", PASSWORD)
        yield made
        await made.http.aclose()


def kafka_of(served: Served) -> KafkaListener:
    listener = KafkaListener(served.app.server.broker, HANDLERS)
    listener.bound(Endpoint("kafka", "127.0.0.1", 9092, (("auth", "plain"),)))
    return listener


async def logged_in(listener: KafkaListener, user: str, password: str = PASSWORD) -> Client:
    client = Client(listener)
    await client.ask(17, 1, SaslHandshakeRequest("PLAIN"))
    await client.ask(36, 2, SaslAuthenticateRequest(f"\0{user}\0{password}".encode()))
    return client


async def test_logins_over_http(served: Served, noted: Any) -> None:
    token = await served.token("alice")
    for _ in range(2):
        await served.get(authorization=basic("alice", PASSWORD))
        await served.get(authorization=f"Bearer {token}")
    await served.get(authorization=basic("alice", WRONG))
    await served.get(authorization=basic(WRONG, WRONG))
    await served.get(authorization=f"Bearer {token}x")
    found = noted()
    assert [(one["event"], one["decision"], one["mechanism"], one.get("principal")) for one in found] == [
        ("login", "allowed", "BASIC", "User:alice"),
        ("login", "allowed", "TOKEN", "User:alice"),
        ("login", "denied", "BASIC", "User:alice"),
        ("login", "denied", "BASIC", None),
        ("login", "denied", "TOKEN", None),
    ]
    assert all(one["listener"] == "http" and one["request_id"] and one["address"] for one in found)
    assert token not in str(found) and token[17:] not in str(found)


async def test_the_mechanism_of_bearer_tokens(tmp_path: Path, noted: Any) -> None:
    """An access token of another issuer is told from a token of the broker, and from a session of the console."""
    async with Issuer(lambda: ManualClock().wall_ms() / 1000).served() as issuer:
        served = Served(tmp_path / "data", "basic,token,jwt", (issuer.settings,))
        async with served.app.lifespan():
            await served.users.create("alice", PASSWORD)
            session = served.app.shared.sessions.open(Identity(Principal(name="alice")))
            page = served.app.shared.sessions.bearer(session)
            assert page is not None
            tokens = [issuer.mint(), issuer.mint(aud="another"), await served.token("alice"), page[0]]
            noted()
            for token in tokens:
                await served.get(authorization=f"Bearer {token}")
            found = noted()
            await served.http.aclose()
    assert [(one["decision"], one["mechanism"]) for one in found] == [
        ("allowed", "JWT"),
        ("denied", "JWT"),
        ("allowed", "TOKEN"),
        ("allowed", "SESSION"),
    ]
    assert not any(token in str(found) for token in tokens)


async def test_logins_over_kafka(served: Served, noted: Any) -> None:
    listener = kafka_of(served)
    await logged_in(listener, "alice")
    await logged_in(listener, "alice", WRONG)
    Client(listener).session.connected("127.0.0.1", "127.0.0.1", Principal(name="CN=dora"))
    assert [(one["decision"], one["mechanism"], one["principal"], one["listener"]) for one in noted()] == [
        ("allowed", "PLAIN", "User:alice", "kafka"),
        ("denied", "PLAIN", "User:alice", "kafka"),
        ("allowed", "SSL", "User:CN=dora", "kafka"),
    ]


async def test_denials_of_each_listener(served: Served, noted: Any) -> None:
    broker = served.app.server.broker
    await broker.topics.create("t", partitions=1)
    await broker.records.produce("t", [NewRecord(value=RECORD)], partition=0)
    carol = await logged_in(kafka_of(served), "carol")
    noted()
    await carol.newest(3, MetadataRequest([MetadataRequestTopic(name="t")]))
    headers = {"authorization": basic("carol", PASSWORD), "x-request-id": "seven"}
    assert (await served.get("/api/v1/topics/t", **headers)).status_code == 403
    assert (await served.get("/topics/t", **headers)).status_code == 403
    line = LineListener(broker, COMMANDS).session()
    line.connected("127.0.0.1", "127.0.0.1")
    old = Kafka07Listener(broker, served.app.server.kafka07_views).session()
    old.connected("127.0.0.1", "127.0.0.1")
    for session, frame in ((line, b"V1|1|CONSUME|t 0 0"), (old, fetch("t", 0)[4:])):
        answer = session.handle(memoryview(frame))
        if answer is not None and not isinstance(answer, list):
            await answer
    found = [one for one in noted() if one["event"] == "denied"]
    assert [one["listener"] for one in found] == ["kafka", "http", "http", "text", "kafka07"]
    assert [one["principal"] for one in found] == ["User:carol"] * 3 + ["User:ANONYMOUS"] * 2
    assert {one["resource"] for one in found} == {"TOPIC:t"}
    assert found[0]["mechanism"] == "PLAIN" and found[1]["mechanism"] == "BASIC"
    assert [one.get("request_id") for one in found[:3]] == [None, "seven", "seven"]
    assert found[1]["rule"] == "none allows"


async def test_changes_over_http(served: Served, noted: Any) -> None:
    await ask(served, "GET", "/users")
    noted()
    await ask(served, "POST", "/users", {"name": "dora", "password": PASSWORD})
    await ask(served, "POST", "/users", {"name": "dora", "password": PASSWORD})
    await ask(served, "PUT", "/users/dora/password", {"password": WRONG})
    token = (await ask(served, "POST", "/tokens", {"owner": "dora"})).json()
    await ask(served, "DELETE", f"/tokens/{token['id']}")
    rule = {"resource_type": "CLUSTER", "principal": "User:dora", "operation": "DESCRIBE"}
    await ask(served, "POST", "/acls", {"acls": [rule]})
    await ask(served, "DELETE", "/acls?principal=User:dora")
    await ask(served, "DELETE", "/users/dora")
    await ask(served, "PUT", "/topics/t")
    await ask(served, "PATCH", "/topics/t", {"configs": {"retention.ms": 1000}})
    await ask(served, "POST", "/topics/t:truncate", {"partitions": [{"partition": 0}]})
    await ask(served, "DELETE", "/topics/t")
    found = noted()
    assert [(one["operation"], one["resource"]) for one in found] == [
        ("CREATE_USER", "USER:dora"),
        ("CREATE_USER", "USER:dora"),
        ("SET_PASSWORD", "USER:dora"),
        ("CREATE_TOKEN", "USER:dora"),
        ("DELETE_TOKEN", f"TOKEN:{token['id']}"),
        ("CREATE_ACL", "ALLOW User:dora * DESCRIBE CLUSTER:LITERAL:kafka-cluster"),
        ("DELETE_ACL", "ALLOW User:dora * DESCRIBE CLUSTER:LITERAL:kafka-cluster"),
        ("DELETE_USER", "USER:dora"),
        ("CREATE_TOPIC", "TOPIC:t"),
        ("ALTER_CONFIGS", "TOPIC:t"),
        ("DELETE_RECORDS", "TOPIC:t-0"),
        ("DELETE_TOPIC", "TOPIC:t"),
    ]
    assert {one["event"] for one in found} == {"change"} and {one["principal"] for one in found} == {
        "User:alice"
    }
    assert [one["decision"] for one in found] == ["allowed", "failed", *["allowed"] * 10]
    assert token["token"][17:] not in str(found)


async def test_changes_over_kafka(served: Served, noted: Any) -> None:
    alice = await logged_in(kafka_of(served), "alice")
    noted()
    topic = CreatableTopic("k", 1, 1, [], [])
    await alice.newest(19, CreateTopicsRequest([topic], validate_only=True))
    assert noted() == []
    await alice.newest(19, CreateTopicsRequest([topic]))
    for kind, name, setting, value in ((2, "k", "retention.ms", "1"), (4, "", "log.retention.ms", "1000")):
        changed = AlterConfigsResource(kind, name, [AlterableConfig(setting, 0, value)])
        await alice.newest(44, IncrementalAlterConfigsRequest([changed]))
    assert [(one["operation"], one["resource"], one["mechanism"]) for one in noted()] == [
        ("CREATE_TOPIC", "TOPIC:k", "PLAIN"),
        ("ALTER_CONFIGS", "TOPIC:k", "PLAIN"),
        ("ALTER_CONFIGS", "BROKER:", "PLAIN"),
    ]


async def test_the_user_of_the_setup_token_is_noted(tmp_path: Path, noted: Any) -> None:
    served = Served(tmp_path / "data", "basic,token")
    async with served.app.lifespan():
        headers = {"authorization": f"Bearer {served.app.setup.issue()}"}
        body = {"name": "root", "password": PASSWORD}
        assert (await served.http.post("/api/v1/users", json=body, headers=headers)).status_code == 201
        assert [(one["operation"], one["principal"]) for one in noted()] == [("CREATE_USER", "setup token")]
        await served.http.aclose()


def test_lines_are_json_on_stderr_or_in_a_file_of_its_owner(tmp_path: Path) -> None:
    hostile = {"event": "denied", "principal": "User:a\n\x1b[31m\u202e"}
    stream = io.StringIO()
    with configured(replace(Config(), log_level="error"), stream):
        logging.getLogger(AUDIT).info("", extra={"fields": hostile})
    (line,) = stream.getvalue().splitlines()
    assert line.isascii() and json.loads(line)["principal"] == hostile["principal"]
    file = tmp_path / "audit.log"
    config = replace(Config(), audit_log=file)
    for _ in range(2):
        with configured(config, stream):
            logging.getLogger(AUDIT).info("", extra={"fields": hostile})
    assert len(file.read_text().splitlines()) == 2 and len(stream.getvalue().splitlines()) == 1
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    with pytest.raises(StartupError, match="audit log"), configured(replace(config, audit_log=tmp_path)):
        pass
