"""Guessing of names and passwords: one text and the same work for all, and no guesser in the way of others."""

from __future__ import annotations

import asyncio
import base64
import threading
from typing import Any

import pytest

import core.security.passwords as passwords
import core.security.scram as scram
from core.errors import ErrorCode
from core.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from core.protocol.messages.sasl_handshake import SaslHandshakeRequest
from tests.core.listeners.kafka.conftest import Client
from tests.core.security.scram_client import ScramClient

from .conftest import PASSWORD, World

# A user with a password, one with tokens alone, one that was deleted, and one that never was.
USERS = ("alice", "robot", "ghost", "nobody")


@pytest.fixture
async def users(world: World) -> World:
    await world.add("alice")
    await world.broker.users.create("robot", None)
    await world.add("ghost")
    await world.broker.users.delete("ghost")
    return world


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


async def plain(world: World, user: str, password: str, host: str = "127.0.0.1") -> Any:
    client = Client(world.listener)
    client.session.connected(host, "127.0.0.1")
    await client.ask(17, 1, SaslHandshakeRequest("PLAIN"))
    return await client.ask(36, 2, SaslAuthenticateRequest(f"\0{user}\0{password}".encode()))


async def test_a_wrong_password_has_one_text_and_costs_the_same_for_every_name(
    users: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rounds of PBKDF2 are counted, which all else is small beside; times are not measured."""
    work: list[tuple[str, int]] = []

    def counted(mechanism: Any, password: str, salt: bytes, iterations: int) -> bytes:
        work.append((mechanism.digest, iterations))
        return original(mechanism, password, salt, iterations)

    original = scram.salted_password
    monkeypatch.setattr(scram, "salted_password", counted)
    seen = set()
    for user in USERS:
        work.clear()
        over_http = await users.client.get(
            "/api/v1/topics", headers={"authorization": basic(user, "wrong"), "x-request-id": "r"}
        )
        over_kafka = await plain(users, user, "also wrong")
        headers = tuple(sorted(over_http.headers.items()))
        seen.add((over_http.status_code, over_http.text, headers, repr(over_kafka), tuple(work)))
        assert work == [("sha256", 4096)] * 2, user
        # Again: a wrong password of an unknown name is remembered as that of a user is.
        assert (await plain(users, user, "wrong")).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert len(work) == 2, user
    assert len(seen) == 1


@pytest.mark.parametrize(("mechanism", "digest"), [("SCRAM-SHA-256", "sha256"), ("SCRAM-SHA-512", "sha512")])
async def test_scram_fails_for_every_name_at_the_same_step_with_the_same_work(
    users: World, monkeypatch: pytest.MonkeyPatch, mechanism: str, digest: str
) -> None:
    counted: list[int] = []
    original = scram.hmac.compare_digest

    def compare(one: bytes, other: bytes) -> bool:
        counted.append(len(one))
        return original(one, other)

    monkeypatch.setattr(scram.hmac, "compare_digest", compare)
    seen = set()
    for user in USERS:
        counted.clear()
        client = Client(users.listener)
        await client.ask(17, 1, SaslHandshakeRequest(mechanism))
        exchange = ScramClient(user, "wrong", digest)
        first = await client.ask(36, 2, SaslAuthenticateRequest(exchange.first()))
        assert first.error_code == 0, user
        fields = dict(part.split("=", 1) for part in first.auth_bytes.decode().split(","))
        last = await client.ask(36, 2, SaslAuthenticateRequest(exchange.final(first.auth_bytes)))
        seen.add((len(fields["r"]), len(fields["s"]), fields["i"], repr(last), tuple(counted)))
    assert len(seen) == 1
    assert counted == [32 if digest == "sha256" else 64]


async def test_a_guesser_waits_for_itself_over_all_listeners(
    users: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    release, begun = threading.Event(), threading.Event()

    def held(*arguments: Any) -> bool:
        begun.set()
        assert release.wait(60)
        return original(*arguments)

    original = passwords.matches
    monkeypatch.setattr(passwords, "matches", held)
    # As many as one address may have in check, half of them over each listener; ASGI's client is 127.0.0.1 too.
    limit = users.broker.config.max_password_checks_per_address
    guesses = [asyncio.create_task(plain(users, "alice", f"wrong {n}")) for n in range(limit // 2)]
    guesses += [
        asyncio.create_task(users.client.get("/topics", headers={"authorization": basic("alice", f"no {n}")}))
        for n in range(limit - limit // 2)
    ]
    try:
        while not begun.is_set() or users.broker.passwords._guesses._waiting.total() < limit:
            await asyncio.sleep(0)
        refused = await users.client.get("/topics", headers={"authorization": basic("alice", "one more")})
        assert refused.status_code == 429
        assert (await plain(users, "bob", "one more")).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        # A token and SCRAM need no such check, from the same address.
        assert (await users.http("alice", "GET", "/api/v1/topics")).status_code == 200
        client = Client(users.listener)
        await client.ask(17, 1, SaslHandshakeRequest("SCRAM-SHA-256"))
        exchange = ScramClient("alice", PASSWORD)
        first = await client.ask(36, 2, SaslAuthenticateRequest(exchange.first()))
        last = await client.ask(36, 2, SaslAuthenticateRequest(exchange.final(first.auth_bytes)))
        assert last.error_code == 0
        honest = asyncio.create_task(plain(users, "alice", PASSWORD, "192.0.2.1"))
    finally:
        release.set()
        await asyncio.gather(*guesses)
    assert (await honest).error_code == 0, "another address is let in, and no user is locked out"
    assert not users.broker.passwords._guesses._waiting
    assert (await plain(users, "alice", PASSWORD)).error_code == 0
