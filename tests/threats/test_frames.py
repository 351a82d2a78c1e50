"""Frames in any order around SASL: no other request runs before the client has proven its user."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from core.broker.broker import Broker
from core.clock import ManualClock
from core.config import Config, Endpoint
from core.listeners.connection import RefusedError
from core.listeners.kafka.dispatch import HANDLERS
from core.listeners.kafka.handler import Handler
from core.listeners.kafka.listener import KafkaListener
from core.protocol.apis import APIS
from core.protocol.codec import encode_request
from core.protocol.header import encode_request_header
from core.protocol.messages.metadata import MetadataRequest
from core.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from core.protocol.messages.sasl_handshake import SaslHandshakeRequest
from core.security.principal import ANONYMOUS, Principal
from tests.core.listeners.kafka.conftest import Client

PASSWORDS = {"alice": "alice's password", "bob": "bob's password"}
BEFORE = {17, 18, 36}
OTHERS = sorted(HANDLERS.keys() - BEFORE)


class World:
    """A broker on a loop of its own. Its handlers note which API ran, and as which user."""

    def __init__(self, directory: Path) -> None:
        self.loop = asyncio.new_event_loop()
        self.clock = ManualClock()
        config = Config(data_dir=directory, scram_iterations=4096, failed_authentication_delay_ms=0)
        self.broker = Broker(config, self.clock)
        self.ran: list[tuple[int, Principal]] = []
        self.run(self.broker.open())
        for user, password in PASSWORDS.items():
            self.run(self.broker.users.create(user, password))
        noting = {key: self.noting(handler) for key, handler in HANDLERS.items()}
        self.listener = KafkaListener(self.broker, noting)
        self.listener.bound(Endpoint("kafka", "127.0.0.1", 9092, (("auth", "plain,scram-sha-256"),)))

    def noting(self, handler: Handler) -> Handler:
        def function(session: Any, request: Any) -> Any:
            self.ran.append((handler.key, session.principal))
            if handler.key in BEFORE:
                return handler.function(session, request)
            raise RefusedError("it was let in")

        return Handler(handler.key, function, needs=handler.needs, max_version=handler.max_version)

    def run(self, work: Any) -> Any:
        return self.loop.run_until_complete(work)

    def close(self) -> None:
        self.run(self.broker.close())
        self.loop.close()


class Frames(RuleBasedStateMachine):
    """One connection. `proven` are the users whose right password was sent; a closed connection stays closed."""

    world: World

    @initialize()
    def connect(self) -> None:
        self.client = Client(self.world.listener)
        self.proven: set[str] = set()
        self.closed = False

    def send(self, frame: bytes) -> None:
        self.world.ran.clear()
        try:
            self.world.run(self.client.raw(frame))
        except RefusedError:
            self.closed = True
        for key, principal in self.world.ran:
            if key not in BEFORE:
                assert principal != ANONYMOUS and principal.name in self.proven
        if self.client.session.principal != ANONYMOUS:
            assert self.client.session.principal.name in self.proven
        if self.client.session.authentication.closing:
            self.closed = True
        if self.closed:
            # The connection reads no more frames.
            self.client = Client(self.world.listener)
            self.proven, self.closed = set(), False

    def ask(self, key: int, version: int, request: Any) -> None:
        self.send(encode_request_header(key, version, 1, "c") + encode_request(key, version, request))

    @rule(key=st.sampled_from(OTHERS), tail=st.binary(max_size=20))
    def other(self, key: int, tail: bytes) -> None:
        self.send(encode_request_header(key, HANDLERS[key].versions[1], 1, "c") + tail)

    @rule(version=st.integers(0, 5), tail=st.binary(max_size=8))
    def versions(self, version: int, tail: bytes) -> None:
        self.send(encode_request_header(18, min(version, APIS[18].max_version), 1, "c") + tail)

    @rule(mechanism=st.sampled_from(("PLAIN", "SCRAM-SHA-256", "GSSAPI", "")), version=st.integers(0, 1))
    def handshake(self, mechanism: str, version: int) -> None:
        self.ask(17, version, SaslHandshakeRequest(mechanism))

    @rule(
        user=st.sampled_from(("alice", "bob", "carol")),
        right=st.booleans(),
        other=st.booleans(),
        raw=st.booleans(),
        version=st.integers(0, 2),
    )
    def token(self, user: str, right: bool, other: bool, raw: bool, version: int) -> None:
        password = PASSWORDS.get(user, "") if right else "wrong"
        if right and not other and user in PASSWORDS:
            self.proven.add(user)
        token = f"{'bob' if other and user != 'bob' else ''}\0{user}\0{password}".encode()
        if right and user == "bob":
            self.proven.add(user)
        if raw:
            self.send(token)
        else:
            self.ask(36, version, SaslAuthenticateRequest(token))

    @rule(noise=st.binary(max_size=60))
    def noise(self, noise: bytes) -> None:
        self.send(noise)

    @rule(seconds=st.sampled_from((0.5, 2.0, 3_700.0)))
    def wait(self, seconds: float) -> None:
        self.world.clock.advance(seconds)


def test_no_other_request_runs_before_a_right_password(tmp_path: Path) -> None:
    world = World(tmp_path)

    class Here(Frames):
        pass

    Here.world = world
    try:
        run_state_machine_as_test(
            Here, settings=settings(max_examples=60, stateful_step_count=20, deadline=None)
        )
        # And after one it does run.
        client = Client(world.listener)
        world.run(client.ask(17, 1, SaslHandshakeRequest("PLAIN")))
        world.run(client.ask(36, 2, SaslAuthenticateRequest(f"\0bob\0{PASSWORDS['bob']}".encode())))
        with pytest.raises(RefusedError, match="it was let in"):
            world.run(client.newest(3, MetadataRequest(None)))
        assert world.ran[-1] == (3, Principal(name="bob"))
    finally:
        world.close()
