"""A right that one user has, by all ways in.

They are its password and its token on the Kafka port and over both HTTP surfaces, and its certificate where a
protocol knows no login. Each of them writes and reads without a right, with one of both, and with both.
"""

from __future__ import annotations

import base64
import contextlib
import json
import ssl
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import trustme

from core.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from core.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from core.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from core.protocol.messages.sasl_handshake import SaslHandshakeRequest
from core.records.batch import build_batch
from core.records.record import NewRecord
from core.security.acl import Operation, PatternType, Permission, ResourceType
from tests.broker_process import BrokerProcess
from tests.clients.line import LineConnection
from tests.clients.wire import Wire
from tests.contract.clients import V2_BINARY, KafkaClient
from tests.core.kafka07.old_client import fetch, produce
from tests.core.security.scram_client import ScramClient
from tests.frames import connect

USER, PASSWORD = "alice", "a right password"
KAFKA, HTTP = "kafka?auth=plain,scram-sha-256", "http?auth=basic,token"
LINE, OLD = "text?tls=default", "kafka07?magic=1&tls=default"
TOPIC = "t"
READ, WRITE = Operation.READ, Operation.WRITE


class Home:
    """The broker, and what alice has: a password, a token, a certificate."""

    def __init__(self, directory: Path) -> None:
        self.authority = trustme.CA()
        server = self.authority.issue_cert("127.0.0.1")
        files = {
            name: directory / f"{name}.pem" for name in ("authority", "server", "key", "alice", "alice-key")
        }
        self.authority.cert_pem.write_to_path(files["authority"])
        server.cert_chain_pems[0].write_to_path(files["server"])
        server.private_key_pem.write_to_path(files["key"])
        files["key"].chmod(0o600)
        own = self.authority.issue_cert("alice@example.org", common_name=USER)
        own.cert_chain_pems[0].write_to_path(files["alice"])
        own.private_key_pem.write_to_path(files["alice-key"])
        table = {
            "certificate": str(files["server"]), "key": str(files["key"]),
            "client_ca": str(files["authority"]), "client_auth": "required",
            "principal_mapping_rules": r"RULE:^CN=([^,\\]+),.*$/$1/",
        }  # fmt: skip
        self.context = ssl.create_default_context(cafile=str(files["authority"]))
        self.context.load_cert_chain(files["alice"], files["alice-key"])
        self.process = BrokerProcess(
            directory / "data",
            options=["--super-user", "User:ANONYMOUS"],
            environment={"SLUICE_TLS": json.dumps({"default": table})},
            schemes=(KAFKA, HTTP, LINE, OLD),
        )
        self.token = ""

    def start(self) -> None:
        self.process.start()
        self.admin = KafkaClient(self.process)
        self.admin.create_topic(TOPIC)
        self.admin.produce(TOPIC, 0, [(None, b"first")])
        for path, body in (("users", {"name": USER, "password": PASSWORD}), ("tokens", {"owner": USER})):
            made = httpx.post(f"{self.process.http}/api/v1/{path}", json=body, trust_env=False, timeout=60)
            assert made.status_code == 201, made.text
        self.token = made.json()["token"]

    def address(self, scheme: str) -> tuple[str, int]:
        return "127.0.0.1", self.process.ports[scheme]

    def allow(self, *operations: Operation) -> None:
        """Let alice do these operations with the topic, and nothing else."""
        with Wire(self.process.kafka_address) as wire:
            everything = DeleteAclsFilter(1, None, 1, None, None, 1, 1)
            assert wire.call(31, DeleteAclsRequest([everything]), 3).filter_results[0].error_code == 0
            rules = [
                AclCreation(
                    ResourceType.TOPIC, TOPIC, PatternType.LITERAL, f"User:{USER}", "*", one, Permission.ALLOW
                )
                for one in operations
            ]
            if rules:
                assert not any(one.error_code for one in wire.call(30, CreateAclsRequest(rules), 3).results)

    def end(self) -> int:
        return self.admin.bounds(TOPIC, 0)[1]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    made = Home(tmp_path_factory.mktemp("one-user"))
    try:
        made.start()
        yield made
        made.admin.close()
    finally:
        made.process.kill()
    assert "Traceback" not in made.process.read_log(), made.process.read_log()[-20_000:]


# Each way tries to write a record and to read the first one. It returns whether it was told that it may; Kafka 0.7 is
# told nothing about a write, so that None is returned.
Way = Callable[[Home, Operation], bool | None]


def kafka(home: Home, operation: Operation, log_in: Callable[[Wire, Home], None]) -> bool:
    with Wire(home.address(KAFKA)) as wire:
        log_in(wire, home)
        if operation is READ:
            found = wire.fetch_partition(TOPIC, 0)
            assert found.error_code in (0, 29)
            assert bool(found.records) is (found.error_code == 0)
            return bool(found.error_code == 0)
        batch = bytes(build_batch([NewRecord(value=b"v")], now_ms=time.time_ns() // 1_000_000))
        code = wire.produce(TOPIC, batch).error_code
        assert code in (0, 29)
        return bool(code == 0)


def plain(secret: Callable[[Home], str]) -> Callable[[Wire, Home], None]:
    def log_in(wire: Wire, home: Home) -> None:
        assert wire.call(17, SaslHandshakeRequest("PLAIN"), 1).error_code == 0
        token = f"\0{USER}\0{secret(home)}".encode()
        assert wire.call(36, SaslAuthenticateRequest(token), 2).error_code == 0

    return log_in


def scram(wire: Wire, _: Home) -> None:
    assert wire.call(17, SaslHandshakeRequest("SCRAM-SHA-256"), 1).error_code == 0
    client = ScramClient(USER, PASSWORD)
    first = wire.call(36, SaslAuthenticateRequest(client.first()), 2)
    last = wire.call(36, SaslAuthenticateRequest(client.final(first.auth_bytes)), 2)
    assert last.error_code == 0 and client.verify(last.auth_bytes)


def native(home: Home, operation: Operation, login: dict[str, Any]) -> bool:
    base = f"http://127.0.0.1:{home.process.ports[HTTP]}/api/v1/topics/{TOPIC}"
    if operation is READ:
        answer = httpx.get(f"{base}/partitions/0/records/0", trust_env=False, timeout=60, **login)
    else:
        answer = httpx.post(
            f"{base}/records", json={"records": [{"value": "v"}]}, trust_env=False, timeout=60, **login
        )
    assert answer.status_code in (200, 403), answer.text
    return answer.status_code == 200


def proxy(home: Home, operation: Operation, login: dict[str, Any]) -> bool:
    base = f"http://127.0.0.1:{home.process.ports[HTTP]}/topics/{TOPIC}/partitions/0"
    if operation is READ:
        answer = httpx.get(
            f"{base}/records?offset=0", headers={"accept": V2_BINARY, **login.pop("headers", {})},
            trust_env=False, timeout=60, **login,
        )  # fmt: skip
    else:
        body = {"records": [{"value": base64.b64encode(b"v").decode()}]}
        answer = httpx.post(
            base, content=json.dumps(body), headers={"content-type": V2_BINARY, **login.pop("headers", {})},
            trust_env=False, timeout=60, **login,
        )  # fmt: skip
    document = answer.json()
    if answer.status_code == 200 and operation is WRITE:
        return document["offsets"][0].get("error_code") is None
    assert answer.status_code == 200 or document["error_code"] == 40301, answer.text
    return answer.status_code == 200


def basic(secret: Callable[[Home], str]) -> Callable[[Home], dict[str, Any]]:
    return lambda home: {"auth": (USER, secret(home))}


def bearer(home: Home) -> dict[str, Any]:
    return {"headers": {"authorization": f"Bearer {home.token}"}}


def line(home: Home, operation: Operation) -> bool:
    connection = LineConnection(home.address(LINE), context=home.context)
    with connection:
        if operation is READ:
            answer = connection.ask("CONSUME", f"{TOPIC} 0 0")
        else:
            answer = connection.ask("PRODUCE", f"{TOPIC} k:v acks=all")
    if answer.code:
        assert "AUTHORIZATION" in answer.code + answer.payload, answer
    return not answer.code


def old(home: Home, operation: Operation) -> bool | None:
    raw = home.context.wrap_socket(connect(home.address(OLD), 60), server_hostname="127.0.0.1")
    with raw:
        if operation is WRITE:
            raw.sendall(produce(TOPIC, b"v"))
        raw.sendall(fetch(TOPIC, 0))
        stream = raw.makefile("rb")
        if operation is WRITE:
            # The broker has handled the write when it answers the next request, or closes the connection.
            with contextlib.suppress(OSError):
                stream.read(4)
            return None
        _, code = struct.unpack(">ih", stream.read(6))
        return bool(code == 0)


def password(_: Home) -> str:
    return PASSWORD


def token(home: Home) -> str:
    return home.token


WAYS: dict[str, Way] = {
    "kafka, password": lambda home, operation: kafka(home, operation, plain(password)),
    "kafka, token": lambda home, operation: kafka(home, operation, plain(token)),
    "kafka, scram": lambda home, operation: kafka(home, operation, scram),
    "native, password": lambda home, operation: native(home, operation, basic(password)(home)),
    "native, token as password": lambda home, operation: native(home, operation, basic(token)(home)),
    "native, bearer": lambda home, operation: native(home, operation, bearer(home)),
    "proxy, password": lambda home, operation: proxy(home, operation, basic(password)(home)),
    "proxy, bearer": lambda home, operation: proxy(home, operation, bearer(home)),
    "line, certificate": line,
    "kafka 0.7, certificate": old,
}


@pytest.mark.parametrize(
    "allowed", [(), (READ,), (WRITE,), (READ, WRITE)], ids=["none", "read", "write", "both"]
)
def test_what_a_rule_allows_every_way_in_allows(home: Home, allowed: tuple[Operation, ...]) -> None:
    home.allow(*allowed)
    for name, way in WAYS.items():
        assert way(home, READ) is (READ in allowed), f"{name} reads"
        before = home.end()
        told = way(home, WRITE)
        assert told in (None, WRITE in allowed), f"{name} writes"
        assert home.end() - before == (WRITE in allowed), f"{name} has written"
