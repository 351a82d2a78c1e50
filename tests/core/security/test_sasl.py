"""core.security.sasl: nothing but ApiVersions and SaslHandshake before, and no way around a token."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from core.security.passwords import Identity
from core.security.plain import Login
from core.security.principal import Principal
from core.security.sasl import Accepted, Challenge, Rejected, SaslMachine, State
from core.security.scram import Mechanism, ScramCredential, credential_of, salted_password
from tests.core.security.scram_client import ScramClient

ALL = ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN")
VERSIONS, HANDSHAKE, AUTHENTICATE = 18, 17, 36
PASSWORDS = {"alice": "a password", "bob": "another one"}
CREDENTIALS = {
    (mechanism, user): credential_of(
        mechanism, salted_password(mechanism, word, b"salt", 4096), b"salt", 4096
    )
    for mechanism in Mechanism
    for user, word in PASSWORDS.items()
}


def find(mechanism: Mechanism, user: str) -> tuple[ScramCredential, bool]:
    found = CREDENTIALS.get((mechanism, user))
    return (found, True) if found else (CREDENTIALS[mechanism, "bob"], False)


def machine(*mechanisms: str) -> SaslMachine:
    return SaslMachine(mechanisms or ALL, find, lambda count: b"x" * count)


def check(login: Login) -> Identity | None:
    right = PASSWORDS.get(login.user) == login.password
    return Identity(Principal(name=login.user)) if right else None


def log_in(
    sasl: SaslMachine, user: str, mechanism: str = "PLAIN", password: str = "", now: float = 0.0
) -> Any:
    assert sasl.handshake(mechanism, framed=True)
    word = password or PASSWORDS[user]
    if mechanism == "PLAIN":
        outcome = sasl.authenticate(f"\0{user}\0{word}".encode(), now)
        return sasl.checked(check(outcome), now) if isinstance(outcome, Login) else outcome
    client = ScramClient(user, word, "sha256" if mechanism.endswith("256") else "sha512")
    outcome = sasl.authenticate(client.first(), now)
    if not isinstance(outcome, Challenge):
        return outcome
    last = sasl.authenticate(client.final(outcome.token), now)
    assert not isinstance(last, Accepted) or client.verify(last.token)
    return last


def test_each_mechanism_lets_a_user_in_and_no_other() -> None:
    for mechanism in ALL:
        sasl = machine()
        assert log_in(sasl, "alice", mechanism).identity.principal == Principal(name="alice")
        assert sasl.principal == Principal(name="alice") and sasl.state is State.AUTHENTICATED
        for user, password in (("alice", "wrong"), ("carol", PASSWORDS["bob"])):
            sasl = machine()
            assert isinstance(log_in(sasl, user, mechanism, password), Rejected)
            assert sasl.state is State.FAILED and sasl.principal is None


def test_a_mechanism_that_is_not_offered_ends_the_exchange() -> None:
    sasl = machine("PLAIN")
    assert not sasl.handshake("SCRAM-SHA-256", framed=True)
    assert sasl.state is State.FAILED and not sasl.admits(HANDSHAKE)


def test_after_good_versions_only_a_handshake_follows() -> None:
    sasl = machine()
    assert sasl.versions_answered(good=False) and sasl.admits(VERSIONS)
    assert sasl.versions_answered(good=True) and not sasl.admits(VERSIONS) and sasl.admits(HANDSHAKE)
    assert not sasl.versions_answered(good=True)
    assert sasl.state is State.FAILED


def test_a_raw_frame_is_a_token_only_after_a_handshake_that_says_so() -> None:
    for framed in (True, False):
        sasl = machine()
        assert not sasl.takes_raw
        sasl.handshake("PLAIN", framed=framed)
        assert sasl.takes_raw is not framed
        sasl.authenticate(b"\0alice\0a password", 0)
        sasl.checked(Identity(Principal(name="alice")), 0)
        assert not sasl.takes_raw


def test_a_client_logs_in_again_as_the_same_by_the_same_mechanism() -> None:
    sasl = machine()
    assert isinstance(log_in(sasl, "alice"), Accepted)
    assert not sasl.begin_again(0.5), "once a second at most"
    assert sasl.state is State.AUTHENTICATED
    assert sasl.begin_again(1.0) and not sasl.admits(VERSIONS)
    assert isinstance(log_in(sasl, "alice", now=1.0), Accepted)
    for user, mechanism in (("bob", "PLAIN"), ("alice", "SCRAM-SHA-256")):
        sasl = machine()
        log_in(sasl, "alice")
        assert sasl.begin_again(5.0)
        assert isinstance(log_in(sasl, user, mechanism, now=5.0), Rejected)
        assert sasl.state is State.FAILED


def test_a_token_while_a_password_is_being_checked_ends_the_exchange() -> None:
    sasl = machine()
    sasl.handshake("PLAIN", framed=True)
    assert isinstance(sasl.authenticate(b"\0alice\0wrong", 0), Login)
    assert isinstance(sasl.authenticate(b"\0bob\0another one", 0), Rejected)
    # The check of the first one comes too late.
    assert isinstance(sasl.checked(Identity(Principal(name="alice")), 0), Rejected)


class AnyOrder(RuleBasedStateMachine):
    """Frames in any order: a client that is let in has sent a right password of that user, after a handshake."""

    def __init__(self) -> None:
        super().__init__()
        self.sasl = machine()
        self.now = 0.0
        self.proven: set[str] = set()
        self.client: ScramClient | None = None
        self.challenge = b""
        self.failed = False

    def done(self, outcome: Any) -> None:
        if isinstance(outcome, Rejected):
            self.failed = True
        if isinstance(outcome, Accepted):
            assert not self.failed and outcome.identity.principal.name in self.proven

    @rule(good=st.booleans())
    def versions(self, good: bool) -> None:
        if self.sasl.admits(VERSIONS) and not self.sasl.versions_answered(good):
            self.failed = True

    @rule(mechanism=st.sampled_from((*ALL, "GSSAPI", "")), framed=st.booleans(), wait=st.floats(0, 3))
    def handshake(self, mechanism: str, framed: bool, wait: float) -> None:
        self.now += wait
        self.client = None
        if self.sasl.admits(HANDSHAKE):
            if self.sasl.state is State.AUTHENTICATED and not self.sasl.begin_again(self.now):
                return
            if not self.sasl.handshake(mechanism, framed=framed):
                self.failed = True

    @rule(token=st.binary(max_size=40))
    def noise(self, token: bytes) -> None:
        self.done(self.sasl.authenticate(token, self.now))

    @rule(user=st.sampled_from(("alice", "bob", "carol")), right=st.booleans(), other=st.booleans())
    def plain(self, user: str, right: bool, other: bool) -> None:
        word = PASSWORDS.get(user, "none") if right else "wrong"
        outcome = self.sasl.authenticate(f"{'bob' if other else ''}\0{user}\0{word}".encode(), self.now)
        if isinstance(outcome, Login):
            if (identity := check(outcome)) is not None:
                self.proven.add(outcome.user)
            outcome = self.sasl.checked(identity, self.now)
        self.done(outcome)

    @rule(user=st.sampled_from(("alice", "carol")), right=st.booleans())
    def scram_first(self, user: str, right: bool) -> None:
        digest = "sha512" if self.sasl.mechanism.endswith("512") else "sha256"
        self.client = ScramClient(user, PASSWORDS["alice"] if right else "wrong", digest)
        outcome = self.sasl.authenticate(self.client.first(), self.now)
        self.challenge = outcome.token if isinstance(outcome, Challenge) else b""
        self.done(outcome)

    @precondition(lambda self: self.client is not None and self.challenge)
    @rule()
    def scram_final(self) -> None:
        assert self.client is not None
        if self.client.user == "alice" and self.client.password == PASSWORDS["alice"]:
            self.proven.add("alice")
        self.done(self.sasl.authenticate(self.client.final(self.challenge), self.now))

    @rule(key=st.integers(-1, 100))
    def other_requests(self, key: int) -> None:
        if self.sasl.state is not State.AUTHENTICATED:
            assert not self.sasl.admits(key) or key in (VERSIONS, HANDSHAKE, AUTHENTICATE)
        if self.failed:
            assert self.sasl.state is State.FAILED and not self.sasl.admits(key) and not self.sasl.takes_raw


def test_frames_in_any_order() -> None:
    run_state_machine_as_test(
        AnyOrder, settings=settings(max_examples=100, stateful_step_count=25, deadline=None)
    )
