"""core.security.oauthbearer: the client's message, and the exchange (RFC 7628)."""

from __future__ import annotations

import pytest

from core.security.oauthbearer import REFUSAL, AccessToken, OauthBearerError, parse
from core.security.passwords import Identity
from core.security.principal import Principal
from core.security.sasl import Accepted, Challenge, Rejected, SaslMachine, State
from tests.core.security.test_sasl import find

ALICE = Identity(Principal(name="alice"), 1_000)


def test_the_messages_of_clients() -> None:
    assert parse(b"n,,\x01auth=Bearer a.b-c_d=\x01\x01") == AccessToken("a.b-c_d=")
    assert parse(b"n,a=al=2Ci=3Dce,\x01auth=bearer  t\x01\x01") == AccessToken("t", "al,i=ce")
    # RFC 7628, section 4.1: host and port are extensions for Kafka.
    message = (
        b"n,a=user@example.com,\x01host=server.example.com\x01port=143\x01auth=Bearer vF9dft4qmT==\x01\x01"
    )
    assert parse(message) == AccessToken("vF9dft4qmT==", "user@example.com")
    assert parse(b"n,,\x01traceId=a=b c\x01auth=Bearer t\x01\x01") == AccessToken("t")
    assert "secret" not in repr(AccessToken("secret", "alice"))


@pytest.mark.parametrize(
    "message",
    [
        b"", b"\x01", b"n,,", b"n,,\x01\x01", b"n,,\x01auth=Bearer t\x01", b"n,,\x01auth=Bearer t\x01\x01\x01",
        b"n,,auth=Bearer t\x01\x01", b"y,,\x01auth=Bearer t\x01\x01", b"p=tls-unique,,\x01auth=Bearer t\x01\x01",
        b"n,a=,\x01auth=Bearer t\x01\x01", b"n,a=a=b,\x01auth=Bearer t\x01\x01", b"n,b=a,\x01auth=Bearer t\x01\x01",
        b"n,,\x01auth=Basic t\x01\x01", b"n,,\x01auth=Bearer\x01\x01", b"n,,\x01auth=Bearer a b\x01\x01",
        b"n,,\x01auth=Bearer a\n\x01\x01", b"n,,\x01auth=Bearer a\x01auth=Bearer b\x01\x01",
        b"n,,\x01auth=Bearer a\x01AUTH=Bearer b\x01\x01", b"n,,\x01a1=b\x01auth=Bearer t\x01\x01",
        b"n,,\x01a=\x00\x01auth=Bearer t\x01\x01", b"n,,\x01a=b\x01\x01", b"n,,\x01auth=Bearer \xff\x01\x01",
        b"\0alice\0password", b"n,,n=alice,r=x",
    ],
)  # fmt: skip
def test_what_is_no_message(message: bytes) -> None:
    with pytest.raises(OauthBearerError):
        parse(message)


def machine() -> SaslMachine:
    made = SaslMachine(["OAUTHBEARER", "PLAIN"], find, lambda count: b"x" * count)
    assert made.handshake("OAUTHBEARER", framed=True)
    return made


def bearer(authzid: str = "") -> bytes:
    return f"n,{authzid and 'a='}{authzid},\x01auth=Bearer t\x01\x01".encode()


def test_a_token_lets_in_and_again() -> None:
    sasl = machine()
    assert sasl.authenticate(bearer("alice"), 0) == AccessToken("t", "alice")
    assert sasl.checked(ALICE, 0) == Accepted(ALICE)
    assert sasl.begin_again(2) and sasl.handshake("OAUTHBEARER", framed=True)
    sasl.authenticate(bearer(), 2)
    assert sasl.checked(ALICE, 2) == Accepted(ALICE)
    # Another user, or another mechanism, is none of this connection.
    assert sasl.begin_again(4) and sasl.handshake("OAUTHBEARER", framed=True)
    sasl.authenticate(bearer(), 4)
    assert sasl.checked(Identity(Principal(name="bob")), 4) == Rejected()


def test_a_refused_token_is_told_and_nothing_lets_in_after_it() -> None:
    for last in (b"\x01", bearer(), b""):
        sasl = machine()
        sasl.authenticate(bearer(), 0)
        assert sasl.checked(None, 0) == Challenge(REFUSAL)
        assert sasl.state is State.TOKENS and sasl.principal is None
        assert sasl.checked(ALICE, 0) == Rejected()
        sasl = machine()
        sasl.authenticate(bearer(), 0)
        sasl.checked(None, 0)
        assert sasl.authenticate(last, 0) == Rejected()
        assert sasl.state is State.FAILED and sasl.checked(ALICE, 0) == Rejected()


def test_another_authorization_id_and_a_malformed_message_fail_at_once() -> None:
    sasl = machine()
    sasl.authenticate(bearer("bob"), 0)
    assert sasl.checked(ALICE, 0) == Rejected()
    assert machine().authenticate(b"\0alice\0t", 0) == Rejected()


def test_a_second_token_while_the_first_is_verified_is_refused() -> None:
    sasl = machine()
    sasl.authenticate(bearer(), 0)
    assert sasl.authenticate(bearer(), 0) == Rejected()
    assert sasl.checked(ALICE, 0) == Rejected()
